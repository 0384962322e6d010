//! Trace files with arrivals, as the simulator and the planner read them.

use std::path::Path;

use anyhow::anyhow;
use rejoin_trace::{Event, Format, Writer, csv, oracle_general};

use crate::arguments::Misuse;
use crate::beside::Beside;

/// Writes arrivals in the format that the file's name tells. `each` passes them in order of time; if
/// it fails, no file remains.
pub(crate) fn write(
    path: &Path,
    each: impl FnOnce(&mut dyn FnMut(Event) -> anyhow::Result<()>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let is_compressed = |ending| path.extension().is_some_and(|found| found == ending);
    if ["gz", "zst", "xz", "bz2"].into_iter().any(is_compressed) {
        let what = "traces are written uncompressed: give a name without an ending for compression";
        return Err(Misuse(format!("{}: {what}", path.display())).into());
    }
    let beside = Beside::create(path)?;
    let failed = |error: rejoin_trace::Error| anyhow!("{}: {error}", path.display());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match Format::of(&name, &[])? {
        Format::Csv => {
            let mut writer = csv::Writer::new(beside.file()?).map_err(failed)?;
            each(&mut |event| writer.write(event).map_err(failed))?;
            writer.finish().map_err(failed)?;
        }
        Format::OracleGeneral => {
            let mut writer = oracle_general::Writer::new(beside.file()?).map_err(failed)?;
            each(&mut |event| writer.write(event).map_err(failed))?;
            writer.finish().map_err(failed)?;
        }
        _ => {
            let mut writer = Writer::new(beside.file()?).map_err(failed)?;
            each(&mut |event| writer.write(event).map_err(failed))?;
            writer.finish().map_err(failed)?;
        }
    }
    beside.finish()
}
