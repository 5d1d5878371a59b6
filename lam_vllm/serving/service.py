"""Everything one server process holds, built once at start-up."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from lam_vllm.encoders.base import Encoder
from lam_vllm.metrics import Metrics
from lam_vllm.pool import Pool
from lam_vllm.records import RecordStore
from lam_vllm.serving.admission import Admission, Seam
from lam_vllm.serving.options import Settings
from lam_vllm.serving.prefix_watch import PrefixWatch
from lam_vllm.serving.warming import Warming
from lam_vllm.serving.work import Compactions, Handler
from lam_vllm.worker import EncoderFacts

RECORD_BYTES = 64_000_000


@dataclass(frozen=True)
class Service:
    """The plugin's state on `app.state.lam`: what the routes read and the hook uses."""

    settings: Settings
    admission: Admission
    handler: Handler
    warming: Warming
    pool: Pool
    metrics: Metrics
    vllm_version: str

    @property
    def encoder(self) -> Encoder | EncoderFacts | None:
        """The encoder, or what is known of the worker's, if there is one."""
        return self.handler.compactors.encoder

    def close(self) -> None:
        """Drop work that has not begun, fail what waits for the worker process, and end that process."""
        if self.handler.compactors.client is not None:
            self.handler.compactors.client.close()
        self.pool.close()


def build_service(
    settings: Settings,
    *,
    metrics: Metrics,
    compactors: Compactions,
    vllm_version: str,
    seam: Seam,
) -> Service:
    """A service with empty books. The key of the record ids is new in every process, so no id outlives it.

    Raises:
        MissingExtraError: the default profile needs an encoder and there is none.
    """
    handler = Handler(compactors, PrefixWatch(), RecordStore(RECORD_BYTES, secrets.token_bytes(32)))
    handler.compactors.get(settings.options.config)  # a default that cannot work must stop the server, not a request
    pool = Pool(metrics.queue_depth)
    admission = Admission(settings.options, handler, pool, metrics, seam, settings.encoder.audit_rate)
    warming = Warming(handler.compactors, pool, admission.accounting)
    return Service(settings, admission, handler, warming, pool, metrics, vllm_version)
