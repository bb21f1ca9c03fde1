"""Modules that another thread is importing at the same moment."""

import sys
import threading

from retinue.runs.capability import loaded_module


def test_a_module_that_a_thread_is_importing_is_waited_for(tmp_path, monkeypatch):
    (tmp_path / "slow_signals.py").write_text(
        "import threading\nbegun, finish = threading.Event(), threading.Event()\n"
    )
    (tmp_path / "slow_module.py").write_text(
        "import slow_signals\nslow_signals.begun.set()\nslow_signals.finish.wait(10)\nvalue = 42\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import slow_signals

    assert loaded_module("slow_module") is None
    thread = threading.Thread(target=__import__, args=("slow_module",))
    thread.start()
    assert slow_signals.begun.wait(10)
    assert not hasattr(sys.modules["slow_module"], "value")
    threading.Timer(0.1, slow_signals.finish.set).start()
    module = loaded_module("slow_module")
    assert module is not None
    assert module.value == 42
    thread.join()
    for name in ("slow_module", "slow_signals"):
        del sys.modules[name]
