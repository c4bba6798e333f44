"""The error classes of the product and the order in which they decide retries.

TuningError
├── TransientError            may pass when tried again once
│   ├── EngineNotReadyError   no healthy completion in time, the process lives
│   ├── EngineDiedError       the process ended without a cause that forbids a retry
│   ├── PortBusyError         something else listens on the port
│   └── TrackerUnavailableError
└── PermanentError            the same input gives the same error
    ├── ConfigError           a value in a file that a person wrote
    ├── TraceError            a trace file that cannot be used
    ├── InvalidParameterError an engine value that cannot be
    ├── InfeasibleError       the engine cannot run this: never retried, the study goes on
    ├── MeasurementInvalidError  measured, but not to be believed
    ├── EvaluationError       the accuracy protocol cannot be followed
    ├── QuantizationError
    └── StorageError          the disk is full or not writable
"""


class TuningError(Exception):
    """Root of all errors that this product raises on purpose.

    ``code`` is a stable upper-case identifier (for tags and tests); the message says what was
    seen, what was needed and what to do.
    """

    code = "TUNING_ERROR"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        """Keep the message and, where given, a code narrower than the class's own."""
        super().__init__(message)
        if code is not None:
            self.code = code


class TransientError(TuningError):
    """An error that one more try may cure."""

    code = "TRANSIENT"


class EngineNotReadyError(TransientError):
    """The engine's process lives but served no completion in time."""

    code = "STARTUP_TIMEOUT"


class EngineDiedError(TransientError):
    """The engine's process ended; its log names no cause that forbids another try."""

    code = "ENGINE_DIED"


class PortBusyError(TransientError):
    """Something already answers on the port that the engine was to take."""

    code = "PORT_BUSY"


class TrackerUnavailableError(TransientError):
    """MLflow could not be reached or refused the write; the artifacts are on disk."""

    code = "TRACKER_UNAVAILABLE"


class PermanentError(TuningError):
    """An error that the same input gives again."""

    code = "PERMANENT"


class ConfigError(PermanentError):
    """A file that a person wrote holds something that cannot be.

    The message names the file, the path of the key, the value and what is allowed.
    """

    code = "CONFIG_ERROR"


class TraceError(PermanentError):
    """A trace file cannot be used."""

    code = "TRACE_ERROR"


class InvalidParameterError(PermanentError):
    """An engine value is outside what the engine or the model allows."""

    code = "INVALID_PARAMETER"


class InfeasibleError(PermanentError):
    """The engine cannot run this trial: it does not fit or is not supported."""

    code = "INFEASIBLE"


class MeasurementInvalidError(PermanentError):
    """A measurement was made and must not be believed."""

    code = "MEASUREMENT_INVALID"


class EvaluationError(PermanentError):
    """The accuracy evaluation could not follow its protocol."""

    code = "EVALUATION_ERROR"


class QuantizationError(PermanentError):
    """A checkpoint could not be quantized or converted."""

    code = "QUANTIZATION_ERROR"


class StorageError(PermanentError):
    """A result could not be written to disk."""

    code = "STORAGE_ERROR"
