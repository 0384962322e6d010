//! Why cells differ, as far as it is known.

use super::faults::Fault;
use super::programs::Program;

/// Returns the cause of a difference.
pub(super) fn cause(program: &Program, fault: Fault) -> Option<&'static str> {
    match fault {
        Fault::ManagerTerminated => Some("The manager cuts its connections at `SIGTERM`."),
        Fault::ResetAtHello | Fault::BigHelloLostAndReset => Some(
            "Where the manager's handshake failed it passes on what the program says, and a reset as an end.",
        ),
        Fault::NoNetwork if program.name == "aria2c" => Some(
            "A look-up of the preload library at exit has the loader run a constructor again, after its destructor.",
        ),
        _ => None,
    }
}
