"""The engines, one file each, imported on demand: `device`, `emulator`, `interpreter`."""

from nkc.verify.engine import Engine, EngineName


def all_engines() -> dict[EngineName, Engine]:
    """Return every engine by name."""
    from nkc.verify.engines.device import DeviceEngine
    from nkc.verify.engines.emulator import EmulatorEngine
    from nkc.verify.engines.interpreter import InterpreterEngine

    return {
        EngineName.DEVICE: DeviceEngine(),
        EngineName.EMULATOR: EmulatorEngine(),
        EngineName.INTERPRETER: InterpreterEngine(),
    }
