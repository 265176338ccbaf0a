"""PTX instructions by which threads wait for each other and for copies: barriers, mbarriers, fences, cp.async and its bulk forms."""

from __future__ import annotations

from emu.host.ptx_block import Block, Unknown, space


def bar(block: Block, mods: list[str], ops: list[str]) -> None:
    """bar and barrier: of the block, numbered, of the warp and of the cluster."""
    if mods[:2] == ["cluster", "arrive"]:
        aligned = str("aligned" in mods).lower()
        block.lines.append(f"::samebits::arrive(::samebits::kCluster, {aligned}, __builtin_FILE(), __builtin_LINE());")
    elif mods[:2] == ["cluster", "wait"]:
        block.lines.append("__cluster_barrier_wait();")
    elif mods[:2] == ["warp", "sync"]:
        block.lines.append(f"__syncwarp(as<uint32_t>({block.value(ops[0])}));")
    elif "red" in mods and len(ops) == 3 and ops[1] == "0":
        name = next(name for way, name in {"popc": "count", "and": "and", "or": "or"}.items() if way in mods)
        block.store(ops[0], f"(unsigned long long)(unsigned)__syncthreads_{name}(({block.value(ops[2])}) != 0)")
    elif ("sync" in mods or "arrive" in mods) and "red" not in mods and len(ops) < 3:
        number, count = (f"as<uint32_t>({block.value(op)})" for op in [*(ops or ["0"]), "0"][:2])
        wait, aligned = (str(word in mods).lower() for word in ("sync", "aligned"))
        block.lines.append(f"::samebits::named_barrier({number}, {count}, {wait}, {aligned});")
    else:
        raise Unknown("bar." + ".".join(mods))


def mbarrier(block: Block, mods: list[str], ops: list[str]) -> None:
    """mbarrier.*, in shared memory of the block or of another one of the cluster."""
    what = mods[0]
    if what == "pending_count":
        block.store(ops[0], f"{block.value(ops[1])} >> 32")
        return
    result = ops.pop(0) if not ops[0].startswith("[") else "_"
    at = block.address(ops[0], space(mods))
    number = f"as<uint32_t>({block.value(ops[1])})" if len(ops) > 1 else "1u"
    if what == "init":
        block.lines.append(f"::samebits::mbarrier_init({at}, {number});")
    elif what == "inval":
        block.lines.append(f"::samebits::mbarrier_inval({at});")
    elif what in ("expect_tx", "complete_tx"):
        block.lines.append(f"::samebits::mbarrier_bytes({at}, {'-' * (what == 'complete_tx')}(long long){number});")
    elif what in ("arrive", "arrive_drop"):
        drop = str(what == "arrive_drop").lower()
        if "expect_tx" in mods:
            block.lines.append(f"::samebits::mbarrier_bytes({at}, {number});")
            number = "1u"
        block.lines.append(f"auto state = ::samebits::mbarrier_arrive({at}, {number}, {drop}); (void)state;")
        block.store(result, "state")
    elif what in ("test_wait", "try_wait"):
        block.store(result, f"(unsigned long long)::samebits::mbarrier_wait({at}, {block.value(ops[1])})")
    else:
        raise Unknown("mbarrier." + ".".join(mods))


def fence(block: Block, mods: list[str], ops: list[str]) -> None:
    """fence and membar."""
    if "tensormap" in " ".join(mods):
        raise Unknown("fence." + ".".join(mods))
    if mods[0] in ("proxy", "mbarrier_init"):  # orders no threads
        if "async" in " ".join(mods):
            block.lines.append("::samebits::proxy_fence();")
        return
    block.lines.append("__threadfence_block();" if "cta" in mods else "__threadfence();")


def cp(block: Block, mods: list[str], ops: list[str]) -> None:
    """cp.async, its groups, and cp.async.bulk."""
    if mods[:2] == ["async", "bulk"]:
        _bulk(block, mods[2:], ops)
    elif mods[:2] == ["async", "commit_group"]:
        block.lines.append("::samebits::async_commit();")
    elif mods[:2] == ["async", "wait_group"]:
        block.lines.append(f"::samebits::async_wait(unsigned({block.value(ops[0])}));")
    elif mods[:2] == ["async", "wait_all"]:
        block.lines.append("::samebits::async_wait_all();")
    elif mods[:3] == ["async", "mbarrier", "arrive"]:
        own = str("noinc" not in mods).lower()
        block.lines.append(f"::samebits::async_arrive({block.address(ops[0], space(mods))}, {own});")
    elif mods[0] == "async" and mods[1] in ("ca", "cg"):
        ops = ops[:-1] if "L2::cache_hint" in mods else ops
        size, past_l1 = block.value(ops[2]), str(mods[1] == "cg").lower()
        source = block.value(ops[3]) if len(ops) > 3 else size
        if len(ops) > 3 and ops[3].lstrip("!%") in block.predicates:  # whether to ignore the source
            source = f"({source} ? 0 : {size})"
        addresses = f"{block.address(ops[0], 'shared')}, {block.address(ops[1], 'global')}"
        block.lines.append(f"::samebits::async_copy_of({addresses}, {size}, {source}, {past_l1});")
    else:
        raise Unknown("cp." + ".".join(mods))


def _bulk(block: Block, mods: list[str], ops: list[str]) -> None:
    if mods[0] == "commit_group":
        block.lines.append("::samebits::bulk_commit();")
        return
    if mods[0] == "wait_group":
        block.lines.append(f"::samebits::bulk_wait(unsigned({block.value(ops[0])}), {str('read' in mods).lower()});")
        return
    if mods[0] == "prefetch" and "tensor" not in mods:
        return
    spaces = [m.split("::")[0] for m in mods[:2]]
    known = {"shared::cta", "shared::cluster", "global", "bulk_group", "mbarrier::complete_tx::bytes", "L2::cache_hint"}
    if not set(spaces) <= {"shared", "global"} or not set(mods) <= known:
        raise Unknown("cp.async.bulk." + ".".join(mods))
    to, source = (block.address(op, where) for op, where in zip(ops, spaces, strict=False))
    size = f"as<uint32_t>({block.value(ops[2])})"
    if spaces[0] == "shared" and "mbarrier::complete_tx::bytes" in mods:
        block.lines.append(f"::samebits::bulk_to_shared({to}, {source}, {size}, {block.address(ops[3], 'shared')});")
    elif spaces == ["global", "shared"] and "bulk_group" in mods:
        block.lines.append(f"::samebits::bulk_to_global({to}, {source}, {size});")
    else:
        raise Unknown("cp.async.bulk." + ".".join(mods))
