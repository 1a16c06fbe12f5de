from __future__ import annotations

import time
from pathlib import Path

from verification.benchmarks.data.profile import Sampler, place_of

ROOT = Path(__file__).parents[3]


def test_frames_belong_to_imports_beam_or_a_module_of_ours() -> None:
    assert place_of("<frozen importlib._bootstrap>") == "imports"
    assert place_of("/x/site-packages/apache_beam/pipeline.py") == "Beam"
    assert place_of(str(ROOT / "corpus" / "rows" / "plans.py")) == "corpus/rows/plans.py"
    assert place_of(str(ROOT / ".venv/lib/site-packages/numpy/core.py")) is None
    assert place_of("/usr/lib/python3.11/json/decoder.py") is None


def test_cpu_time_is_sampled_where_it_is_spent() -> None:
    sampler = Sampler()
    with sampler.running():
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
    assert sampler.samples["tests/verification/benchmarks/test_data_profile.py"] >= 5
