"""The texts of all errors of the registry, as pure functions.

Each says what was requested, what was found, and which command fixes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_NUMBERS = {2: "Two", 3: "Three", 4: "Four"}


def malformed_id(text: object, *, installed: Iterable[str]) -> str:
    return (
        f"{text!r} is not an environment id. Write 'namespace:name', for example 'gym:Pendulum-v1'. "
        f"Installed namespaces: {_listed(installed)}."
    )


def plugin_not_installed(namespace: str, *, asked: str, package: str, extra: str, installed: Iterable[str]) -> str:
    planned = f"It is planned as {package}, which is not published yet."
    where = f"It is in the package {package}: pip install 'steppe[{extra}]'." if extra else planned
    return (
        f"No installed plugin provides '{namespace}:' (asked for {asked!r}). {where} "
        f"Installed namespaces: {_listed(installed)}."
    )


def unknown_namespace(
    namespace: str, *, asked: str, name: str, candidates: Iterable[str], installed: Iterable[str]
) -> str:
    installed = list(installed)
    # Packages that are not installed are only suggested if the names are very similar.
    close = suggestion(namespace, installed) or suggestion(namespace, candidates, cutoff=0.75)
    hint = f"Did you mean '{close}:{name}'? " if close else ""
    return (
        f"No plugin provides '{namespace}:' (asked for {asked!r}). {hint}"
        f"Installed namespaces: {_listed(installed)} ('steppe plugins' lists them)."
    )


def unknown_env(label: str, *, namespace: str, name: str, names: Sequence[str]) -> str:
    close = suggestion(name, names)
    hint = f" Did you mean {close!r}?" if close else ""
    count = f" 'steppe envs {namespace}' lists all {len(names)}." if names else ""
    return f"{label} has no environment {name!r}.{hint}{count}"


def unknown_registered_env(owner: str, *, name: str, names: Sequence[str]) -> str:
    close = suggestion(name, names)
    hint = f" Did you mean {close!r}?" if close else ""
    return f"'{owner}:' (registered in this process) has no environment {name!r}.{hint} It has: {_listed(names)}."


def library_missing(label: str, *, missing: Sequence[str]) -> str:
    verb = "is" if len(missing) == 1 else "are"
    return f"{label} needs {_joined(missing)}, which {verb} not installed: {_pip(missing)}."


def none_of_several(label: str, *, alternatives: Sequence[str], install: str) -> str:
    neither = "neither" if len(alternatives) == 2 else "none of them"
    found = f"{neither} is installed" if len(alternatives) > 1 else "it is not installed"
    return f"{label} needs {' or '.join(alternatives)}; {found}: pip install '{install}'."


def version_unsupported(label: str, *, supported: str, library: str, version: str, where: str, install: str) -> str:
    return f"{label} supports {supported}, but {library} {version} is installed in {where}: pip install '{install}'."


def other_steppe(label: str, *, needs: str, running: str, dist: str, newer_runs: bool) -> str:
    found = f"{label} was written for {needs}, but steppe {running} is running"
    if newer_runs:
        return f"{found}: pip install -U {dist}, or pip install '{needs}'."
    series = ".".join(running.split(".")[:2])
    article = "an" if dist[:1].lower() in "aeio" else "a"
    return f"{found}: pip install -U '{needs}', or {article} {dist} made for {series}."


def hook_mismatch(label: str, *, running: str, mismatch: str, where: str) -> str:
    place = f" ({where})" if where else ""
    return f"{label} does not fit steppe {running}: {mismatch}{place}."


def hook_arguments(hook: str, *, takes: Sequence[str], unknown: Sequence[str]) -> str:
    return f"{hook} takes ({', '.join(takes)}), the plugin's function takes {_joined([repr(name) for name in unknown])}"


def hook_unmarked(hook: str) -> str:
    return f"{hook} has no @hookimpl. Write @hookimpl above it, from steppe import hookimpl"


def hook_missing(hook: str, *, arguments: Sequence[str]) -> str:
    return f"it has no {hook}. Write @hookimpl, def {hook}({', '.join(arguments)})"


def hook_unknown(hook: str, *, candidates: Iterable[str]) -> str:
    close = suggestion(hook, candidates)
    return f"there is no hook {hook!r}" + (f"; did you mean {close!r}?" if close else "")


def broken(
    name: str, *, label: str, dist: str, version: str, target: str, cause: BaseException, where: str, hide: str
) -> str:
    kind = label.partition(" '")[0]
    place = f" ({where})" if where else ""
    return (
        f"{kind} {name!r} ({dist} {version}, {target}) failed to import: {type(cause).__name__}: {cause}{place}. "
        f"Other plugins still work. Hide it with STEPPE_DISABLE_PLUGINS={hide}."
    )


def no_such_module(label: str, *, module: str) -> str:
    return f"{label} names the module {module!r}, which does not exist: its package metadata is wrong."


def no_such_attribute(label: str, *, module: str, attribute: str) -> str:
    return f"{label} names {attribute!r} of {module!r}, which has none: its package metadata is wrong."


def not_a_class(label: str, *, target: str) -> str:
    return f"{label} names '{target}', which is not a class: its package metadata is wrong."


def not_a_command(label: str, *, target: str, missing: Sequence[str]) -> str:
    return f"{label} names '{target}', which is no command: it has no {_joined(missing)}."


def bad_requirements(label: str, *, cause: BaseException) -> str:
    return f"{label} has a requirement that cannot be read ({cause}): its package metadata is wrong."


def conflict(what: str, *, providers: Sequence[str], hide: Sequence[str]) -> str:
    count = _NUMBERS.get(len(providers), str(len(providers)))
    fix = "Uninstall one, or hide it" if len(hide) == 1 else "Uninstall all but one, or hide them"
    return f"{count} packages provide {what}: {_joined(providers)}. {fix}: STEPPE_DISABLE_PLUGINS={','.join(hide)}."


def blocked(kind: str, name: str, *, dist: str, version: str, setting: str) -> str:
    return f"{kind} {name!r} is installed ({dist} {version}) but hidden by {setting}."


def namespace_taken(namespace: str, *, dist: str, version: str) -> str:
    return (
        f"'{namespace}:' cannot be registered in this process: {dist} {version} provides it. "
        f"Choose another name, or hide the package: STEPPE_DISABLE_PLUGINS={dist}."
    )


def made_nothing(label: str, *, name: str, function: str) -> str:
    return f"{label} made no environment for {name!r}: {function} returned None. Write: return env"


def made_no_environment(label: str, *, name: str, found: str, function: str) -> str:
    library = found.partition(".")[0]
    wrapper = ", such as steppe_gym.GymWrapper(env)," if library in ("gym", "gymnasium") else ""
    return (
        f"{label} made {_an(found)} for {name!r}, which is no environment of steppe. Return an EnvBase{wrapper} from "
        f"{function}."
    )


def names_not_listed(label: str, *, found: object) -> str:
    write = f"return [{found!r}]" if isinstance(found, str) else "return ['...']"
    return f"{label}: steppe_env_names must return a list of names, found {found!r}. Write: {write}"


def name_not_a_string(label: str, *, found: object) -> str:
    return f"{label}: steppe_env_names must return a list of names, found {found!r} among them. Write: return ['...']"


def name_with_namespace(label: str, *, namespace: str, found: str) -> str:
    bare = found.removeprefix(f"{namespace}:")
    return f"{label}: steppe_env_names gives names without their namespace, found {found!r}. Write: {bare!r}"


def no_library_info(label: str, *, found: object) -> str:
    parts = list(found) if isinstance(found, (tuple, list)) else [found]
    arguments = ", ".join(map(repr, parts)) if len(parts) in (2, 3) else "'...', '...'"
    return (
        f"{label}: steppe_library must return a LibraryInfo, found {found!r}. "
        f"Write: return LibraryInfo({arguments}), from steppe import LibraryInfo"
    )


def not_picklable(name: str, *, cause: str) -> str:
    return f"{name!r} was registered in the parent process with a function that cannot be sent to a worker: {cause}."


def not_installed(kind: str, name: str, *, package: str, extra: str) -> str:
    planned = f"It is planned in {package}, which does not have it yet."
    where = f"It is in {package}: pip install 'steppe[{extra}]'." if extra else planned
    # These groups have agents, actors and readers of infos too.
    noun = "class" if kind in ("collector", "env class") else kind
    return f"No installed package has the {noun} {name!r}. {where}"


def unknown_class(kind: str, name: str, *, candidates: Iterable[str]) -> str:
    close = suggestion(name, candidates)
    hint = f". Did you mean {close!r}?" if close else ""
    module = "envs" if kind == "env class" else f"{kind}s"
    return f"module 'steppe.{module}' has no attribute {name!r}{hint}"


def unknown_command(name: str, *, commands: Iterable[str], candidates: Iterable[str]) -> str:
    close = suggestion(name, candidates)
    hint = f" Did you mean {close!r}?" if close else ""
    return f"There is no command {name!r}.{hint} Commands: {_listed(commands)}."


def suggestion(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the most similar candidate, or None if its similarity is below `cutoff` (from 0 to 1)."""
    from difflib import get_close_matches

    pool = list(dict.fromkeys(candidates))
    if close := get_close_matches(word, pool, n=1, cutoff=cutoff):
        return close[0]
    folded = {candidate.lower(): candidate for candidate in pool}
    close = get_close_matches(word.lower(), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _an(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _pip(requirements: Sequence[str]) -> str:
    return "pip install " + " ".join(f"'{text}'" for text in requirements)
