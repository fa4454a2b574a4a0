"""Takes away what only Linux has, in every interpreter that finds this folder on its path.

``STEPPE_TEST_WITHOUT`` names what: ``memfd``, ``eventfd``, ``epoll``, by commas; all three by default.
"""

import os
import select

MEANS = {"memfd": (os, "memfd_create"), "eventfd": (os, "eventfd"), "epoll": (select, "epoll")}

for _name in os.environ.get("STEPPE_TEST_WITHOUT", ",".join(MEANS)).split(","):
    _module, _attribute = MEANS[_name]
    if hasattr(_module, _attribute):
        delattr(_module, _attribute)
