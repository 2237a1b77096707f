"""The entry point: registers DDTREE with stock SGLang, or a stub that says in one line why it cannot.

Loaded in every SGLang process, before arguments are parsed. It must never raise: SGLang only logs that, and the launch
then dies with `Unknown speculative algorithm name: DDTREE`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddtree_kernels.sglang_plugin import buffers, options, rope, settings, signatures, validate
from ddtree_kernels.sglang_plugin.settings import Refused

logger = logging.getLogger(__name__)
NAME = "DDTREE"


def installed() -> str:
    """SGLang's version, '' where it is not known."""
    from importlib import metadata

    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return ""


def reason_against(version: str) -> str:
    """Why this SGLang is refused, '' for one that is as tested."""
    why = signatures.unsupported(version)
    release = signatures.release_of(version)
    if why or release is None:
        return why
    found = signatures.problems(release.calls)
    return f"SGLang {version} is not as tested: {'; '.join(found)}" if found else ""


def load() -> None:
    """Called by SGLang without arguments. Idempotent."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    version = installed()
    try:
        why = reason_against(version)
    except Exception as error:  # the table must not be what stops SGLang
        why = f"its check failed: {type(error).__name__}: {error}"
    try:
        SpeculativeAlgorithm.from_string(NAME)
    except ValueError:
        pass
    else:
        return  # loaded before, or this build has a DDTREE of its own
    try:
        if why:
            _register_stub(SpeculativeAlgorithm, why)
        else:
            _register(SpeculativeAlgorithm, version)
    except Exception as error:
        # 0.5.23 and forks may have another register(); there DDTREE stays unknown, and the log says why
        logger.error("DDTREE is not registered: %s", why or f"{type(error).__name__}: {error}")


def _register_stub(algorithms: Any, why: str) -> None:
    def refuse(args: Any) -> None:
        raise Refused(f"DDTREE refuses: {why}")

    algorithms.register(NAME, validate_server_args=refuse)(refuse)
    logger.warning("DDTREE refuses: %s", why)


def _register(algorithms: Any, version: str) -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.speculative.spec_registry import CustomSpecAlgo

    class DDTreeAlgo(CustomSpecAlgo):  # type: ignore[misc]
        """DFLASH to the rest of SGLang: features of the target, draft KV in the pool, graphs, request checks."""

        def is_dflash(self) -> bool:
            """It drafts with a DFlash model."""
            return True

        def is_frozen_kv_mtp(self) -> bool:
            """Not in the base class of 0.5.12."""
            return False

    register: Callable[..., Any] = algorithms.register(
        "DDTREE",
        supports_overlap=False,
        validate_server_args=lambda args: validated(args, version),
        spec_class=DDTreeAlgo,
    )

    @register
    def worker(server_args: Any) -> type:
        """The worker's class; its modules load the kernel library, so only now. Refused where they differ."""
        release = signatures.release_of(version)
        found = signatures.problems(release.late) if release is not None else []
        if found:
            raise Refused(f"DDTREE refuses: SGLang {version} is not as tested: {'; '.join(found)}")
        from ddtree_kernels.sglang_plugin.worker import DDTreeWorker

        return DDTreeWorker

    HookRegistry.register(options.TARGET, options.add, HookType.AFTER)


def model_of(args: Any) -> validate.Model:
    """What SGLang's own reading of the target's config says."""
    config = args.get_model_config()
    text = config.hf_text_config
    return validate.Model(
        mla=bool(args.use_mla_backend()),
        hybrid=validate.hybrid_by(text),
        window=validate.window_by(text) or ("is_hybrid_swa" if getattr(config, "is_hybrid_swa", False) else ""),
        multimodal=bool(getattr(config, "is_multimodal", False)) and not getattr(args, "language_only", False),
        encoder_decoder=bool(getattr(config, "is_encoder_decoder", False)),
        context=int(getattr(config, "context_len", 0) or 0),
        vocabulary=int(getattr(config, "vocab_size", 0) or 0),
        heads=int(getattr(config, "num_attention_heads", 0) or 0),
        head_size=int(getattr(config, "head_dim", 0) or 0),
    )


def draft_of(args: Any) -> tuple[Any, dict[str, Any]]:
    """(the draft's config as this release loads it, its config.json as it is); ({}, {}) where it cannot be read."""
    from sglang.srt.utils.hf_transformers.config import get_config

    path = args.speculative_draft_model_path
    try:
        loaded = get_config(
            path,
            trust_remote_code=args.trust_remote_code,
            revision=args.speculative_draft_model_revision,
            model_override_args=json.loads(args.json_model_override_args),
        )
    except Exception as error:  # as stock: a draft whose config cannot be read fails later, with its own words
        logger.warning("DDTREE: the draft's config at %s cannot be read: %s", path, error)
        return {}, {}
    try:
        raw = json.loads(Path(str(path), "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        raw = {}
    return loaded, raw if isinstance(raw, dict) else {}


def block_of(args: Any, loaded: Any) -> int:
    """Tokens of a drafted block: the flag, else the draft's own, else stock's 16."""
    if args.speculative_dflash_block_size is not None:
        return int(args.speculative_dflash_block_size)
    from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config

    try:
        found = parse_dflash_draft_config(draft_hf_config=loaded).resolve_block_size(default=None)
    except ValueError as error:
        raise Refused(f"DDTREE refuses: {error}") from error
    return int(found) if found is not None else settings.DEFAULT_BLOCK


def validated(args: Any, version: str) -> None:
    """SGLang's hook, in the launcher: refuses in one line, or settles the arguments and says what they cost."""
    if not args.speculative_draft_model_path:
        raise Refused("DDTREE refuses: it needs --speculative-draft-model-path")
    loaded, raw = draft_of(args)
    try:
        made = settings.read(os.environ, args.speculative_num_draft_tokens, block_of(args, loaded))
    except Refused as error:
        raise Refused(f"DDTREE refuses: {str(error).removeprefix('DDTREE refuses: ')}") from error
    model = model_of(args)
    validate.check(args, made, model)
    for text in validate.settle(args, made):
        logger.warning("DDTREE: %s", text)
    args.ddtree_release = version
    theta = loaded.get("rope_theta") if isinstance(loaded, dict) else getattr(loaded, "rope_theta", None)
    if text := rope.warning(raw, theta):
        logger.warning(text)
    logger.info(costs(args, made, model, loaded))


def costs(args: Any, made: settings.Settings, model: validate.Model, loaded: Any) -> str:
    """The predicted buffers, in one line."""
    from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config

    try:
        layers = parse_dflash_draft_config(draft_hf_config=loaded).target_layer_ids or ()
    except ValueError:
        layers = ()
    batch = max([b for b in args.cuda_graph_bs or () if b <= args.max_running_requests], default=1)
    hidden = getattr(args.get_model_config(), "hidden_size", 0) or 0
    splits = int(getattr(args, "triton_attention_num_kv_splits", 8) or 8)
    found = buffers.predict(
        made.width, batch, model.context, model.vocabulary, model.heads, model.head_size, splits, len(layers) * hidden
    )
    return buffers.line(made.width, batch, model.context, found)
