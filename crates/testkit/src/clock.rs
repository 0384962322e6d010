//! The clock by which processes live: the real one, or another one by Debian's package `faketime`.

use std::process::{Command, Stdio};

use crate::process::Process;

/// A clock that several processes share. It ends when it is dropped.
pub struct Clock {
    environment: Vec<(&'static str, String)>,
    /// Seconds that pass in one.
    pub factor: u32,
    /// The process that began the clock. The others read from its memory when that was.
    holder: Option<Process>,
}

impl Clock {
    pub fn real() -> Self {
        Self { environment: Vec::new(), factor: 1, holder: None }
    }

    /// `None` if `faketime` is not installed.
    pub fn faster(factor: u32) -> Option<Self> {
        let mut clock = Self::of(&format!("+0 x{factor}"))?;
        clock.factor = factor;
        Some(clock)
    }

    /// A clock that is set wrong, by so many seconds. Only the time of the day is. `None` if `faketime` is not installed.
    pub fn ahead(by_s: i64) -> Option<Self> {
        let mut clock = Self::of(&format!("{by_s:+}s"))?;
        clock.environment.push(("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()));
        Some(clock)
    }

    fn of(time: &str) -> Option<Self> {
        const VARIABLES: [&str; 3] = ["LD_PRELOAD", "FAKETIME", "FAKETIME_SHARED"];
        let show = VARIABLES.map(|name| format!("echo \"${name}\"; ")).concat();
        let mut command = Command::new("faketime");
        command.args(["-f", time, "sh", "-c", &format!("{show} exec cat")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = Process::try_start(&mut command).ok()?;
        let lines = holder.lines();
        let values = VARIABLES.map(|name| (name, lines.next_line().expect("its value")));
        Some(Self { environment: values.into(), factor: 1, holder: Some(holder) })
    }

    /// A command that lives by this clock.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let Some(holder) = &mut self.holder else { return };
        // It removes its shared memory when what it runs has ended.
        drop(holder.stdin.take());
        holder.wait();
    }
}
