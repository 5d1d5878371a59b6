"""vLLM's way in. Import and constructor do nothing: vLLM logs what fails there and serves without the plugin.

Every check is in `attach_router` and `init_state`, where an exception stops the server.
"""

from __future__ import annotations

import inspect
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lam_vllm.serving.options import Options
    from lam_vllm.serving.settings import Settings
    from lam_vllm.serving.work import Compactions

SUPPORTED_VLLM = "0.32."
SWITCH_SECONDS = 0.0005
"""How long a thread may hold the interpreter while another waits (Python's default is 5 ms).

A compactor's thread runs Python code beside the event loop, and the loop asks for the interpreter after this time. It
gets it when the other thread's step ends: soon in Python code, and in a tokenizer, which lets go of it; not before the
end of a single call into C that holds it, such as a search through a long text.
"""

_SERVING = ("openai_serving_chat", "openai_serving_responses", "anthropic_serving_messages", "serving_tokenization")


class LamPlugin:
    """The endpoint plugin `lam`: routes, middleware and the admission hook of one API server process."""

    name = "lam"
    required_tasks = ("generate", "render")

    def attach_router(self, app: Any) -> None:
        """Add the routes and the middleware. It lands inside vLLM's authentication, which is added later."""
        from lam_vllm.metrics import process_metrics
        from lam_vllm.serving.middleware import LamMiddleware
        from lam_vllm.serving.routes import make_router

        app.include_router(make_router())
        app.add_middleware(LamMiddleware, metrics=process_metrics(), authorized=_key_check(app.state.args))

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:  # noqa: ARG002 - vLLM's signature
        """Check everything that could fail later, build the service, and put the hook in.

        Raises:
            UnsupportedServerError: this vLLM is not one that the plugin can hook, or serves a model that it cannot.
            OptionError, InputFileError: a `LAM_*` setting is wrong, or a key is needed and there is none.
            MissingExtraError, EncoderError: the encoder is needed, or was asked for, and cannot be loaded.
        """
        import vllm

        from lam_vllm.metrics import process_metrics
        from lam_vllm.serving.hook import install, install_refusal
        from lam_vllm.serving.service import build_service
        from lam_vllm.serving.settings import key_of, settings_of_processes
        from lam_vllm.serving.tracing import compaction_spans

        renderer, processes = state.online_renderer, processes_of(engine_client)
        check_server(vllm.__version__, state, renderer)
        settings = _with_model_window(settings_of_processes(os.environ, max(processes)), renderer.model_config)
        if renderer.use_harmony and settings.is_on:
            raise _unsupported(
                "GPT-OSS prompts are rendered on a path that no plugin sees; start the server without --lam-profile"
            )
        key = key_of(os.environ, settings, max(processes))
        state.lam = build_service(
            settings,
            key=key,
            metrics=process_metrics(),
            compactors=_compactions(settings, renderer, key),
            vllm_version=vllm.__version__,
            processes=processes[0],
            seam=_seam(renderer.use_harmony),
        )
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        install(renderer, state.lam.admission, compaction_spans())
        if renderer.use_harmony:
            install_refusal(renderer, state.lam.admission)


def check_server(version: str, state: Any, renderer: Any) -> None:
    """Pass if this vLLM has, under the names and in the form the hook needs, what the hook replaces.

    Raises:
        UnsupportedServerError: the version is outside the tested range, a method is gone or has another signature, or
            an API renders its prompts with an object of its own.
    """
    if not version.startswith(SUPPORTED_VLLM):
        raise _unsupported(f"vLLM {version} is not supported; supported: {SUPPORTED_VLLM}x")
    methods = {"preprocess_chat": ["request", "messages"]}
    if getattr(renderer, "use_harmony", False):
        methods["adjust_harmony_request"] = ["request"]
    for method, expected in methods.items():
        found = getattr(renderer, method, None)
        if found is None:
            raise _unsupported(f"{type(renderer).__name__}.{method} does not exist in vLLM {version}")
        if list(inspect.signature(found).parameters)[: len(expected)] != expected:
            raise _unsupported(f"{type(renderer).__name__}.{method} does not begin with {', '.join(expected)}")
    if not inspect.iscoroutinefunction(renderer.preprocess_chat):
        raise _unsupported(f"{type(renderer).__name__}.preprocess_chat is not a coroutine function")
    for name in _SERVING:
        serving = getattr(state, name, None)
        if serving is not None and serving.online_renderer is not renderer:
            raise _unsupported(f"{name} does not use the server's online_renderer")


def processes_of(engine_client: Any) -> tuple[int, int]:
    """How many API processes this server has, and how many replicas of it there are, on other hosts perhaps.

    vLLM's own arguments do not tell: its module entry takes a number of API processes and starts one.
    """
    config = getattr(engine_client, "vllm_config", None)  # a server that only renders has no engine
    parallel = getattr(config, "parallel_config", None)
    return getattr(parallel, "_api_process_count", 1), getattr(parallel, "data_parallel_size", 1)


def _unsupported(why: str) -> Exception:
    from lam_vllm.errors import UnsupportedServerError

    return UnsupportedServerError(f"lam-vllm cannot work in this server: {why}")


def _compactions(settings: Settings, renderer: Any, key: bytes) -> Compactions:
    """Compactors of this process and, where an encoder is named or needed, its worker process, ready.

    Raises:
        EncoderError: the encoder cannot be loaded, or the model's tokenizer cannot be given to its process.
    """
    from lam_vllm.metrics import process_metrics
    from lam_vllm.serving.service import build_compactions
    from lam_vllm.tokens import portable_tokenizer, token_counter

    tokenizer = renderer.renderer.get_tokenizer()
    return build_compactions(
        settings,
        key=key,
        count_tokens=token_counter(tokenizer),
        portable=lambda: portable_tokenizer(tokenizer),
        tokenizer_name=str(renderer.model_config.tokenizer),
        metrics=process_metrics(),
    )


def _with_model_window(settings: Settings, model_config: Any) -> Settings:
    """The settings with the reach of a model that sees a sliding window on every layer, unless a limit was set."""
    text = model_config.hf_text_config
    window = getattr(text, "sliding_window", None)
    kinds = set(getattr(text, "layer_types", None) or ["sliding_attention"])
    if not window or kinds != {"sliding_attention"}:
        return settings

    def within(options: Options) -> Options:
        if options.config.max_reference_distance_tokens is not None:
            return options
        return replace(options, config=options.config.model_copy(update={"max_reference_distance_tokens": int(window)}))

    models = {name: within(options) for name, options in settings.rollout.models.items()}
    return replace(settings, options=within(settings.options), rollout=replace(settings.rollout, models=models))


def _seam(harmony: bool) -> Any:
    from vllm.exceptions import VLLMValidationError
    from vllm.renderers.chat_utils import has_non_text_content

    from lam_vllm.serving.admission import Seam

    return Seam(
        reject=lambda error: VLLMValidationError(str(error), parameter=error.field),
        has_media=has_non_text_content,
        harmony=harmony,
    )


def _key_check(args: Any) -> Any:
    """Whether a request carries a key of the server: vLLM asks for one under /v1 only, and /tokenize is outside."""
    import vllm.envs
    from starlette.datastructures import Headers
    from vllm.entrypoints.serve.middleware.authenticate import AuthenticationMiddleware

    keys = [key for key in (args.api_key or [vllm.envs.VLLM_API_KEY]) if key]
    if not keys:
        return lambda _scope: True
    guard = AuthenticationMiddleware(app=None, tokens=keys)
    return lambda scope: guard.verify_token(Headers(scope=scope))
