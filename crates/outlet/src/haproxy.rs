//! HAProxy's runtime socket, by which it takes ticket keys without a reload (its management guide, `set ssl tls-key`).
//!
//! HAProxy holds three keys. A new one pushes the oldest out, and the second of the three encrypts.

use std::io;
use std::path::Path;
use std::time::Duration;

use rejoin_tickets::{KeyRing, ServerKeyForm};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::files::haproxy_keys;
use crate::listing::{Listing, Secret};
use crate::{Context, Error};

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
const DENIED: &str = "Permission denied";
const REFUSES: &str = "refuses: write `stats socket … level admin` in its configuration";
const LONGEST_ANSWER_BYTES: u64 = 64 * 1024;

/// Gives HAProxy the keys for this time, if it has others. Returns true if it had. `file` is the file of `tls-ticket-keys`, as
/// the configuration names it or relative to this process's folder; HAProxy has read it when it started.
///
/// # Errors
/// [`Error::Haproxy`], which names the remedy.
pub async fn push(
    socket: &Path,
    file: &Path,
    ring: &KeyRing,
    context: &Context,
    now_s: u64,
) -> Result<bool, Error> {
    let failed = |problem: String| Error::Haproxy { socket: socket.into(), problem };
    let wanted = haproxy_keys(&Listing::of(ring, context, ServerKeyForm::Haproxy, now_s));
    let shown = ask(socket, b"show tls-keys\n").await.map_err(failed)?;
    let id = id_of(&shown, file).map_err(failed)?;
    let listed = ask(socket, format!("show tls-keys #{id}\n").as_bytes()).await.map_err(failed)?;
    let held = held(&listed);
    let texts: Vec<_> = wanted.iter().map(|key| base64(key)).collect();
    let mut commands = Secret::with_room(1_024);
    for text in missing(&held, &texts) {
        commands.add(format_args!("set ssl tls-key #{id} "));
        commands.add(std::str::from_utf8(text).expect("base64"));
        commands.add(";");
    }
    let commands = commands.done();
    let Some((b';', commands)) = commands.split_last() else { return Ok(false) };
    let line = Zeroizing::new([commands, b"\n"].concat());
    let answer = ask(socket, &line).await.map_err(failed)?;
    let answer = String::from_utf8_lossy(&answer);
    if answer.matches("updated").count() == missing(&held, &texts).len() {
        return Ok(true);
    }
    // It shows keys at any level.
    if answer.contains(DENIED) {
        return Err(failed(REFUSES.to_owned()));
    }
    let said = answer.split_whitespace().collect::<Vec<_>>().join(" ");
    Err(failed(format!("did not take the keys: {said}")))
}

/// Returns the keys to push, so that HAProxy holds the wanted ones in their order. At a turn, and when the next key is
/// made, one or two are enough: each of the others is held all the time, so no ticket is refused in between.
fn missing<'a>(held: &[Vec<u8>], wanted: &'a [Zeroizing<Vec<u8>>]) -> &'a [Zeroizing<Vec<u8>>] {
    let pairs =
        |from: usize| held.iter().skip(from).zip(wanted).all(|(there, key)| *there == **key);
    match held.len() == wanted.len() {
        true => (0..held.len())
            .find(|from| pairs(*from))
            .map_or(wanted, |from| &wanted[wanted.len() - from..]),
        false => wanted,
    }
}

/// Finds the number of the file in the answer to `show tls-keys`: `# id (file)`, and a line for each file.
fn id_of(shown: &[u8], file: &Path) -> Result<u32, String> {
    let text = String::from_utf8_lossy(shown);
    let found = |file: &Path| {
        let row = |line: &str| {
            let (id, rest) = line.trim().split_once(' ')?;
            let name = rest.trim().strip_prefix('(')?.strip_suffix(')')?;
            (Path::new(name) == file).then(|| id.parse().ok())?
        };
        text.lines().find_map(row)
    };
    // HAProxy seldom starts in our folder, so that its configuration has the whole path.
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    found(&absolute).or_else(|| found(file)).ok_or_else(|| {
        if text.contains(DENIED) {
            REFUSES.to_owned()
        } else {
            format!(
                "has read no ticket keys from {file}: write `bind … tls-ticket-keys {file}` in its configuration, and \
                 start it after the file is there",
                file = absolute.display()
            )
        }
    })
}

/// Reads the keys in the answer to `show tls-keys #ID`: a line for each, its number and the key.
fn held(listed: &[u8]) -> Vec<Vec<u8>> {
    let lines = listed.split(|byte| *byte == b'\n').filter(|line| line.first() != Some(&b'#'));
    let keys = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(1));
    keys.map(<[u8]>::to_vec).collect()
}

fn base64(key: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut text = Secret::with_room(key.len() * 2);
    text.add_base64(key);
    text.done()
}

/// Sends one line, and returns the answer.
async fn ask(socket: &Path, line: &[u8]) -> Result<Zeroizing<Vec<u8>>, String> {
    let asked = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(line).await?;
        let mut answer = Zeroizing::new(Vec::with_capacity(LONGEST_ANSWER_BYTES as usize));
        stream.take(LONGEST_ANSWER_BYTES).read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    let answered = timeout(PATIENCE, asked).await;
    let answered = answered.map_err(|_| "does not answer".to_owned())?;
    answered.map_err(|cause| unreached(socket, &cause))
}

/// Says what is in the way of the socket.
fn unreached(socket: &Path, cause: &io::Error) -> String {
    let line = match cause.kind() {
        io::ErrorKind::PermissionDenied => {
            let socket = socket.display();
            format!(
                "`stats socket {socket} user NAME mode 600 level admin`, with the user of this process,"
            )
        }
        _ => "`stats socket … level admin`".to_owned(),
    };
    format!("cannot be reached: {cause}; write {line} in its configuration")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Vec<Zeroizing<Vec<u8>>> {
        names.iter().map(|name| Zeroizing::new(name.as_bytes().to_vec())).collect()
    }

    #[test]
    fn only_what_is_missing_is_pushed() {
        let pushed = |held: &[&str]| {
            let held: Vec<_> = held.iter().map(|name| name.as_bytes().to_vec()).collect();
            let wanted = keys(&["a", "b", "c"]);
            missing(&held, &wanted)
                .iter()
                .map(|key| String::from_utf8_lossy(key).into_owned())
                .collect::<String>()
        };
        assert_eq!(pushed(&["a", "b", "c"]), "");
        assert_eq!(pushed(&["z", "a", "b"]), "c");
        assert_eq!(pushed(&["y", "z", "a"]), "bc");
        assert_eq!(pushed(&["a", "c", "b"]), "abc");
        // A turn, and the making of the next key.
        assert_eq!(pushed(&["z", "a", "b"]), "c");
        assert_eq!(pushed(&["a", "b", "a"]), "bc");
        assert_eq!(pushed(&[]), "abc");
    }

    #[test]
    fn a_socket_of_another_user_is_said_how_it_would_be_ours() {
        let told = |kind: io::ErrorKind| unreached(Path::new("/run/ha.sock"), &kind.into());
        let denied = told(io::ErrorKind::PermissionDenied);
        assert!(
            denied.contains("`stats socket /run/ha.sock user NAME mode 600 level admin`"),
            "{denied}"
        );
        let missing = told(io::ErrorKind::NotFound);
        assert!(missing.contains("`stats socket … level admin`"), "{missing}");
    }

    #[test]
    fn the_file_is_found_by_its_name() {
        let shown = b"# id (file)\n0 (/etc/a)\n1 (/run/keys/haproxy)\n\n";
        assert_eq!(id_of(shown, Path::new("/run/keys/haproxy")), Ok(1));
        // HAProxy shows the path as its configuration has it; ours is relative to the folder that we were started in.
        let here = std::env::current_dir().expect("a folder");
        let shown_here = format!("# id (file)\n3 ({}/keys)\n", here.display());
        assert_eq!(id_of(shown_here.as_bytes(), Path::new("keys")), Ok(3));
        assert_eq!(id_of(b"# id (file)\n4 (keys)\n", Path::new("keys")), Ok(4));
        assert!(
            id_of(shown, Path::new("/run/keys"))
                .is_err_and(|why| why.contains("tls-ticket-keys /run/keys"))
        );
        assert!(
            id_of(b"Permission denied\n", Path::new("/a"))
                .is_err_and(|why| why.contains("level admin"))
        );
    }
}
