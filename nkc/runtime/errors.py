"""What can go wrong between a bundle and a launch, each as one line: where, what, why, and how to mend it."""

from dataclasses import dataclass

from nkc.ir.errors import NkcError


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One guard that the caller's arguments do not meet. argument: the tensor, dim or workspace it is about."""

    guard: str
    argument: str
    wanted: str
    actual: str

    def __str__(self) -> str:
        return f"`{self.argument}` {self.guard}: wanted {self.wanted}, got {self.actual}"


class ContractViolation(NkcError):  # noqa: N818 - the name that users catch
    """A call whose arguments are outside what the kernel was compiled for. Nothing was launched."""

    exit_code = 2

    def __init__(self, kernel: str, violations: tuple[Violation, ...]) -> None:
        self.kernel = kernel
        self.violations = violations
        super().__init__(f"{kernel}: " + "; ".join(str(violation) for violation in violations))

    @property
    def argument(self) -> str:
        """Return the argument that the first failed guard names."""
        return self.violations[0].argument

    @property
    def wanted(self) -> str:
        """Return what the first failed guard asks for."""
        return self.violations[0].wanted

    @property
    def actual(self) -> str:
        """Return what the caller gave it."""
        return self.violations[0].actual


class BundleError(NkcError):
    """A bundle that is damaged, of another version, or not what its manifest says. Nothing was loaded."""

    exit_code = 4

    def lines(self) -> tuple[str, ...]:
        """Return one line per problem."""
        return tuple(str(self).splitlines())


class NoBundleError(BundleError):
    """There is nothing at the given path that could be a bundle: another one was meant, and none is damaged."""

    exit_code = 2


class DriverError(NkcError):
    """The driver is missing, or refused a call. call: its name. code: its status, 0 where there was no call."""

    exit_code = 4

    def __init__(self, message: str, *, call: str = "", code: int = 0) -> None:
        self.call = call
        self.code = code
        super().__init__(message)
