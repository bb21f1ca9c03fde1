"""Property tests measure truth, not speed: a busy machine must not fail them."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "retinue", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("retinue")
