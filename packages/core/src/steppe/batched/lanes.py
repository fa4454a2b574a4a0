"""Lanes: environments that each write their row of one storage, in whichever process they are."""

from __future__ import annotations

from typing import Any

        informed = bool(self._infos[lane]) and bool(self.informed[lane])
        other = self.on_tensordicts[lane]
        if other is not None:
            other.reset(on_data=on_data, informed=informed)
            return
        env = self.envs[lane]
        info = {key: view.copy() for key, view in self._infos[lane].items()} if informed else None
        env.reset_into(self.root_out[lane], env.take_seed(), info)
        for root, _ in self.done_arrays.values():
            root[lane] = False
