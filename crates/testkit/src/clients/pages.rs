//! nginx with everything that the programs ask for, for one version of TLS.

use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{KeyPair, PKCS_RSA_SHA256};

use crate::manager::Managed;
use crate::port;
use crate::process::{Process, wait_until};
use crate::stacks::{Counted, Tls, nginx_listening};

/// Pages, uploads, a repository and a server whose certificate has expired.
pub struct Pages {
    folder: PathBuf,
    pub port: u16,
    pub expired: u16,
    /// The port of a server with an RSA key.
    pub rsa: u16,
    nginx: Process,
}

const NGINX: &str = "\
daemon off; master_process off; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 4096; }
http {
  log_format session '$ssl_session_reused';
  access_log FOLDER/access.log session;
  keepalive_timeout 5; ssl_protocols TLSvVERSION; ssl_session_cache shared:tls:1m;
  client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
  root FOLDER/www; client_max_body_size 64m;
  server { listen 127.0.0.1:RSA_PORT ssl; ssl_certificate RSA_CERTIFICATE; ssl_certificate_key RSA_KEY; }
  server { listen 127.0.0.1:PORT ssl http2; ssl_certificate CERTIFICATE; ssl_certificate_key KEY;
           location /up { dav_methods PUT; } }
  server { listen 127.0.0.1:EXPIRED ssl http2; ssl_certificate OLD_CERTIFICATE; ssl_certificate_key OLD_KEY; }
}
";

/// The size of the file that is downloaded and uploaded.
pub const BYTES: usize = 3_000_000;

impl Pages {
    /// `None` where nginx is not installed.
    pub fn start(managed: &Managed, tls: Tls) -> Option<Self> {
        let folder = PathBuf::from(managed.file(&format!("site-{}", tls.number())));
        let www = folder.join("www");
        std::fs::create_dir_all(www.join("up")).expect("a folder");
        let big: Vec<u8> = (0..BYTES).map(|at| ((at * at) >> 7) as u8).collect();
        std::fs::write(www.join("big"), &big).expect("a file");
        std::fs::write(www.join("page"), "a page\n").expect("a file");
        repository(&www);
        let (certificate, key) = managed.certify(&["localhost", "127.0.0.1"]);
        let (old_certificate, old_key) = managed.issue(
            &KeyPair::generate().expect("a key"),
            (&["localhost"], "expired"),
            |parameters| {
                parameters.not_before = rcgen::date_time_ymd(2001, 1, 1);
                parameters.not_after = rcgen::date_time_ymd(2002, 1, 1);
            },
        );
        let rsa_pair = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key");
        let (rsa_certificate, rsa_key) = managed.issue(&rsa_pair, (&["localhost"], "rsa"), |_| {});
        let [port, expired, rsa] = [(); 3].map(|()| port::reserve());
        let mut text = NGINX.to_owned();
        for (word, value) in [
            ("FOLDER", folder.display().to_string()),
            ("VERSION", tls.number().to_owned()),
            // Longer words before those that are in them.
            ("RSA_PORT", rsa.to_string()),
            ("RSA_CERTIFICATE", rsa_certificate),
            ("RSA_KEY", rsa_key),
            ("OLD_CERTIFICATE", old_certificate),
            ("OLD_KEY", old_key),
            ("PORT", port.to_string()),
            ("EXPIRED", expired.to_string()),
            ("CERTIFICATE", certificate),
            ("KEY", key),
        ] {
            text = text.replace(word, &value);
        }
        let configuration = folder.join("nginx.conf");
        std::fs::write(&configuration, text).expect("a file");
        let nginx = nginx_listening(&configuration, port)?;
        Some(Self { folder, port, expired, rsa, nginx })
    }

    /// Counts requests by the kind of their connection, since this was last called. Waits for at least so many: nginx
    /// logs them after it has answered.
    pub fn counted(&self, requests: u64) -> Counted {
        let log = self.folder.join("access.log");
        let logged = || std::fs::read_to_string(&log).unwrap_or_default();
        wait_until("nginx's log", || logged().lines().count() as u64 >= requests);
        let lines = logged();
        // nginx appends to the file.
        std::fs::write(&log, "").expect("its log");
        Counted::of(lines.lines().map(|line| line == "r"))
    }

    /// Returns true if the upload arrived whole.
    pub fn uploaded(&self, name: &str) -> bool {
        let read = |path: &str| std::fs::read(self.folder.join("www").join(path)).ok();
        let big = read("big");
        big.is_some() && read(&format!("up/{name}")) == big
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.nginx.id()
    }

    pub fn big(&self) -> String {
        self.folder.join("www/big").display().to_string()
    }
}

/// A repository that any server of files can serve.
fn repository(www: &Path) {
    let git = |folder: &Path, words: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(folder).args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(words);
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").output().is_ok_and(|made| made.status.success())
    };
    let work = www.join("work");
    std::fs::create_dir_all(&work).expect("a folder");
    std::fs::write(work.join("file"), "in a repository\n").expect("a file");
    let _made = git(&work, &["init", "-q", "-b", "main"])
        && git(&work, &["add", "file"])
        && git(&work, &["commit", "-q", "-m", "one"])
        && git(www, &["clone", "-q", "--bare", "work", "repository.git"])
        && git(&www.join("repository.git"), &["update-server-info"]);
}
