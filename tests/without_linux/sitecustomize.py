"""Remove features of Linux in every interpreter with this folder on its path.

``STEPPE_TEST_WITHOUT`` lists the features, separated by commas. Default: ``memfd,eventfd,epoll``.
"""

import os
import select

MEANS = {"memfd": (os, "memfd_create"), "eventfd": (os, "eventfd"), "epoll": (select, "epoll")}

for _name in os.environ.get("STEPPE_TEST_WITHOUT", ",".join(MEANS)).split(","):
    _module, _attribute = MEANS[_name]
    if hasattr(_module, _attribute):
        delattr(_module, _attribute)
