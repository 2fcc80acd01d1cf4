"""The engines, one file each, imported on demand: `device`, `emulator`, `interpreter`."""

from nkc.verify.engine import Engine, EngineName


def all_engines(*, model: str = "once", jobs: int = 1) -> dict[EngineName, Engine]:
    """Return every engine by name. model, jobs: the emulator's MFMA model, and processes that share one run."""
    from nkc.verify.engines.device import DeviceEngine
    from nkc.verify.engines.emulator import EmulatorEngine
    from nkc.verify.engines.interpreter import InterpreterEngine
    from nkc.verify.gfx950.mfma import MfmaModel

    return {
        EngineName.DEVICE: DeviceEngine(),
        EngineName.EMULATOR: EmulatorEngine(MfmaModel(model), jobs=jobs),
        EngineName.INTERPRETER: InterpreterEngine(),
    }
