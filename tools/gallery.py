"""Draw the gallery of environments: a short picture of each, and a manifest with its spaces.

    python tools/gallery.py [ID ...] [--check] [--tiles]

Writes ``docs/gallery/*.gif`` and ``manifest.json`` (the picture, the policy, the spaces, the seed, and the versions of
the libraries). An environment without a policy in tools/gallery_policies.py gets random actions. ``--tiles`` puts eight
pictures of trained policies side by side, as ``tiles.gif`` for the README. ``--check`` draws nothing: it compares the
manifest with the pictures, the policies, and the spaces of the environments of installed libraries.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import gallery_policies  # noqa: E402
from tools.gallery_policies import POLICIES  # noqa: E402

FOLDER = ROOT / "docs/gallery"
MANIFEST = FOLDER / "manifest.json"
SIZE, FRAMES, LIMIT = 240, 60, 100_000  # pixels of a side, frames, bytes of a picture
SEED = 0

#: Arguments that environments need to draw frames.
_GYM = [
    *("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"),
    *(
        "LunarLander-v3",
        "BipedalWalker-v3",
        "CarRacing-v3",
        "FrozenLake-v1",
        "CliffWalking-v1",
        "Taxi-v4",
        "Blackjack-v1",
    ),
    *("HalfCheetah-v5", "Ant-v5", "Hopper-v5", "Walker2d-v5", "Humanoid-v5", "Pusher-v5", "Swimmer-v5"),
    *("InvertedPendulum-v5", "InvertedDoublePendulum-v5"),
    *(f"ALE/{game}-v5" for game in ("Breakout", "Pong", "SpaceInvaders", "Seaquest", "MsPacman", "Qbert", "Enduro")),
    *("MiniGrid-Empty-8x8-v0", "MiniGrid-FourRooms-v0", "MiniGrid-DoorKey-8x8-v0"),
]
_DM = (
    *("cartpole-swingup", "cheetah-run", "walker-walk", "reacher-easy", "finger-spin", "ball_in_cup-catch"),
    *("humanoid-stand", "fish-swim", "quadruped-walk", "hopper-hop"),
)
_PETTINGZOO = (
    *("classic/connect_four_v3", "classic/tictactoe_v3", "classic/chess_v6", "butterfly/pistonball_v6"),
    *("butterfly/knights_archers_zombies_v11", "butterfly/cooperative_pong_v6"),
    *("mpe2/simple_spread_v3", "mpe2/simple_tag_v3", "sisl/pursuit_v5", "sisl/multiwalker_v9"),
)
_JUMANJI = ("Snake-v1", "Maze-v0", "Game2048-v1", "RubiksCube-v0", "PacMan-v1", "Tetris-v0")
_PGX = ("connect_four", "tic_tac_toe", "chess", "go_9x9", "2048", "othello")
_GYMNAX = ("Breakout-MinAtar", "SpaceInvaders-MinAtar", "Asterix-MinAtar", "Freeway-MinAtar")
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    **{f"gym:{name}": {"render_mode": "rgb_array"} for name in _GYM},
    **{f"dm:{name}": {"from_pixels": True, "pixels_only": False} for name in _DM},
    **{f"pettingzoo:{name}": {"render_mode": "rgb_array"} for name in _PETTINGZOO},
    **{
        f"vmas:{name}": {"num_envs": 1}
        for name in ("balance", "navigation", "transport", "wheel", "flocking", "football")
    },
    **{
        f"brax:{name}": {"render_mode": "rgb_array", "backend": "spring"} for name in ("ant", "halfcheetah", "walker2d")
    },
    **{f"jumanji:{name}": {"render_mode": "rgb_array"} for name in _JUMANJI},
    **{f"pgx:{name}": {} for name in _PGX},
    **{f"gymnax:{name}": {} for name in _GYMNAX},
    "craftax:Craftax-Classic-Pixels-v1": {},
    **{f"mo-gym:{name}": {"render_mode": "rgb_array"} for name in ("deep-sea-treasure-v0", "mo-lunar-lander-v3")},
}


#: The name of the trained policy of an environment, in gallery_policies; the others act at random.
TRAINED = {policy.env: name for name, policy in POLICIES.items()}

TILES = (
    *("gym:HalfCheetah-v5", "dm:cartpole-swingup", "vmas:balance", "gym:LunarLander-v3"),
    *("pettingzoo:mpe2/simple_spread_v3", "gym:CartPole-v1", "vmas:navigation", "gym:Pendulum-v1"),
)


def pgx_frame(env: Any, data: Any) -> Any:
    """Draw a board of Pgx, which writes SVG; cairosvg makes pixels of it."""
    import io

    import cairosvg
    import numpy as np
    from pgx._src.visualizer import Visualizer
    from PIL import Image

    _, board = env.native_state(data)  # the first is a random key
    drawing = Visualizer(color_theme="light").get_dwg(states=board).tostring()
    png = cairosvg.svg2png(drawing.encode(), output_width=SIZE, background_color="white")
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def minatar_frame(env: Any, data: Any) -> Any:
    """Draw the planes of a game of MinAtar, ``[10, 10, k]``, each in a colour of its own."""
    import colorsys

    import numpy as np

    planes = data["observation"].numpy().astype(bool)
    colours = [colorsys.hsv_to_rgb(plane / planes.shape[-1], 0.75, 0.95) for plane in range(planes.shape[-1])]
    image = np.full((*planes.shape[:2], 3), 24, np.uint8)
    for plane, colour in enumerate(colours):
        image[planes[..., plane]] = np.array(colour) * 255
    return image.repeat(24, 0).repeat(24, 1)


def craftax_frame(env: Any, data: Any) -> Any:
    return (data["observation"] * 255).byte().numpy().repeat(4, 0).repeat(4, 1)


#: How to draw the environments whose libraries have no ``render`` that returns pixels.
DRAWN = {"pgx:": pgx_frame, "gymnax:": minatar_frame, "craftax:": craftax_frame}


def drawn_frames(env: Any, draw_frame: Any) -> Iterator[Any]:
    """Yield a frame of each step of random play, which the environment does not draw itself."""
    with env:
        env.set_seed(SEED)
        data = env.reset()
        for _ in range(FRAMES):
            yield draw_frame(env, data)
            data = env.maybe_reset(env.step_mdp(env.step(env.rand_action(data))))


def frames_of(name: str, arguments: dict[str, Any]) -> Iterator[Any]:
    """Yield frames ``[height, width, 3]`` uint8 of a trained policy if the environment has one, or of random play."""
    import torch

    from steppe import TransformedEnv, make_env
    from steppe.cli import import_policy
    from steppe.transforms import PixelRenderTransform

    policy, every = None, 1
    if name in TRAINED:
        policy, every = import_policy(_callable(name)), POLICIES[TRAINED[name]].every
    torch.manual_seed(SEED)
    env = make_env(name, **arguments)
    for prefix, draw_frame in DRAWN.items():
        if name.startswith(prefix):
            yield from drawn_frames(env, draw_frame)
            return
    key: Any = "pixels"
    if "pixels" not in env.observation_spec.keys():
        key = "frame"
        env = TransformedEnv(env, PixelRenderTransform(out_keys=[key]))
    with env:
        env.set_seed(SEED)
        # The first frames of Atari's games show an empty screen.
        skipped = 60 if name.startswith("gym:ALE") else 0
        steps = skipped + FRAMES * every
        data = env.rollout(steps, policy, break_when_any_done=False)[..., skipped::every][key]
        if name.startswith("vmas:"):
            data = data[0]
        for frame in data:
            yield (frame.permute(1, 2, 0) if frame.shape[0] == 3 else frame).contiguous().numpy()


def save(frames: list[Any], path: Path) -> None:
    """Save frames as a looping GIF of at most ``LIMIT`` bytes, with fewer colours if it needs to be smaller."""
    from PIL import Image

    images = []
    for frame in frames:
        image = Image.fromarray(frame)
        side = min(image.size)
        left, top = ((length - side) // 2 for length in image.size)
        wide = max(image.size) > 1.6 * side
        image = image if wide else image.crop((left, top, left + side, top + side))
        scale = SIZE / max(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)))
        canvas = Image.new("RGB", (SIZE, SIZE), "white")
        canvas.paste(image, ((SIZE - image.width) // 2, (SIZE - image.height) // 2))
        images.append(canvas)
    for colours, every in ((128, 1), (64, 1), (32, 1), (32, 2), (16, 2), (16, 3), (8, 4), (8, 6)):
        palette = images[0].quantize(colours)
        chosen = [image.quantize(colours, palette=palette, dither=Image.Dither.NONE) for image in images[::every]]
        chosen[0].save(path, save_all=True, append_images=chosen[1:], duration=50 * every, loop=0, optimize=True)
        if path.stat().st_size <= LIMIT:
            return
    raise ValueError(f"{path.name} has {path.stat().st_size} bytes in its smallest form; the limit is {LIMIT}.")


def draw_tiles() -> None:
    """Put the pictures of ``TILES`` side by side, two rows of four with white borders."""
    from PIL import Image

    side, border = 160, 6
    pictures = [Image.open(FOLDER / _file(name)) for name in TILES]
    images = []
    for number in range(0, FRAMES, 2):
        canvas = Image.new("RGB", (4 * (side + border), 2 * (side + border)), "white")
        for place, picture in enumerate(pictures):
            picture.seek(number * picture.n_frames // FRAMES)
            tile = picture.convert("RGB").resize((side, side))
            canvas.paste(tile, (place % 4 * (side + border), place // 4 * (side + border)))
        images.append(canvas)
    sample = Image.new("RGB", (canvas.width, 4 * canvas.height))
    for row in range(4):
        sample.paste(images[row * (len(images) - 1) // 3], (0, row * canvas.height))
    palette = sample.quantize(128)  # one for all frames, so that colours do not flicker
    images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    path = FOLDER / "tiles.gif"
    images[0].save(path, save_all=True, append_images=images[1:], duration=100, loop=0, optimize=True)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


def _file(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".gif"


def _callable(name: str) -> str:
    return f"{gallery_policies.__name__}:{TRAINED[name]}"


def policy_of(name: str) -> dict[str, str]:
    """Return what the manifest says of the policy in a picture."""
    if name not in TRAINED:
        return {"alt": f"{name}, random actions"}
    trained = POLICIES[TRAINED[name]]
    weights = _digest(gallery_policies.FOLDER / f"{TRAINED[name]}.pt")
    of = {"policy": _callable(name), "trained": trained.command(TRAINED[name]), "weights": weights}
    return {"alt": f"{name}, a policy trained with {trained.program.upper()}", **of}


def policy_problems(entry: dict[str, str]) -> Iterator[str]:
    """Yield what an entry of the manifest says of its policy and does not hold, or leaves out."""
    policy = policy_of(entry["id"])
    for kind in ("alt", "policy", "trained", "weights"):
        if policy.get(kind) != entry.get(kind):
            yield f"{entry['id']}: {kind} is {policy.get(kind)}, and the manifest says {entry.get(kind)}; draw it again"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else "missing"


def described(name: str, arguments: dict[str, Any]) -> dict[str, str]:
    """Return the observation and the action of an environment in words for a table."""
    from steppe import make_env

    with make_env(name, **{key: value for key, value in arguments.items() if "pixels" not in key}) as env:
        return {"observation": _entries(env.observation_spec), "action": _entries(env.full_action_spec)}


def _entries(spec: Any) -> str:
    parts, states = [], 0
    for key, leaf in spec.items(include_nested=True, leaves_only=True):
        if key[0] == "state":  # what the functions of a JAX library need for a step, up to 50 arrays
            states += 1
            continue
        label = key if isinstance(key, str) else "/".join(key)
        shape = list(leaf.shape)
        kind = (
            f"{type(leaf).__name__}({leaf.space.n})" if hasattr(leaf.space, "n") else str(leaf.dtype).partition(".")[2]
        )
        parts.append(f"`{label}` {shape} {kind}")
    if states:
        parts.append(f"`state` ({states} arrays of the library)")
    return ", ".join(parts) or "none"


def versions() -> dict[str, str]:
    """Return the versions of the libraries that draw."""
    names = ("gymnasium", "ale-py", "minigrid", "mujoco", "dm-control", "pettingzoo", "mpe2", "vmas", "mo-gymnasium")
    names += ("brax", "jumanji", "pgx", "gymnax", "craftax")
    return {name: importlib.metadata.version(name) for name in names if _installed(name)}


def _installed(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def draw(names: list[str]) -> list[str]:
    """Draw the pictures of environments, and write the manifest; return a sentence for each that failed.

    The pictures of libraries that are not installed stay as they are.
    """
    from steppe.errors import LibraryMissing, PluginNotFound

    FOLDER.mkdir(exist_ok=True)
    old = json.loads(MANIFEST.read_text(encoding="utf-8")) if MANIFEST.exists() else {}
    known = {each["id"]: each for each in old.get("environments", [])}
    failed = []
    for name in names:
        file = _file(name)
        try:
            save(list(frames_of(name, ENVIRONMENTS[name])), FOLDER / file)
            spaces = described(name, ENVIRONMENTS[name])
        except (LibraryMissing, PluginNotFound) as error:
            print(f"{name} is left out: {str(error).splitlines()[0]}", flush=True)
            continue
        except Exception as error:  # the library cannot draw here
            failed.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            continue
        known[name] = {"id": name, "file": file, **policy_of(name), "sha256": _digest(FOLDER / file), **spaces}
        print(f"{name}: {(FOLDER / file).stat().st_size:,} bytes", flush=True)
    ordered = [known[name] for name in ENVIRONMENTS if name in known]
    drawn_with = {**old.get("versions", {}), **versions()}
    content = {"seed": SEED, "frames": FRAMES, "size": SIZE, "versions": drawn_with, "environments": ordered}
    MANIFEST.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return failed


def problems() -> Iterator[str]:
    """Yield what is wrong with the manifest: pictures that miss, changed or are too large, policies, and spaces."""
    from steppe.errors import SteppeError

    entries = json.loads(MANIFEST.read_text(encoding="utf-8"))["environments"]
    files = {path.name for path in FOLDER.glob("*.gif")} - {"tiles.gif"}
    yield from (f"{name} is not in the manifest" for name in sorted(files - {entry["file"] for entry in entries}))
    for entry in entries:
        path = FOLDER / entry["file"]
        if not path.exists():
            yield f"{entry['file']} does not exist"
        elif path.stat().st_size > LIMIT:
            yield f"{entry['file']} is larger than {LIMIT} bytes"
        elif _digest(path) != entry["sha256"]:
            yield f"{entry['file']} is not the picture that the manifest describes"
        yield from policy_problems(entry)
        try:
            spaces = described(entry["id"], ENVIRONMENTS[entry["id"]])
        except (SteppeError, ImportError):
            continue  # the library is not installed here
        for kind, text in spaces.items():
            if text != entry[kind]:
                yield f"{entry['id']}: the {kind} is {text}, and the manifest says {entry[kind]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", metavar="ID", help="environments to draw (default: all)")
    parser.add_argument("--check", action="store_true", help="compare the manifest with pictures and environments")
    parser.add_argument("--tiles", action="store_true", help="draw tiles.gif from the pictures")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    if args.tiles:
        draw_tiles()
        return 0
    found = list(problems()) if args.check else draw(args.ids or list(ENVIRONMENTS))
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
