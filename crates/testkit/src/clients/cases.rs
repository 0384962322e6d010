//! Programs and their tasks.

/// The server's means that a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// A page.
    Page,
    /// All that [`crate::clients::pages`] has.
    Pages,
    /// TLS 1.3.
    Tls13,
}

/// The way of a case's connections with Rejoin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through the manager.
    Manager,
    /// The same way as without Rejoin, for a reason that contains these words.
    Directly(&'static str),
}

/// One thing that a program does.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub program: &'static str,
    pub what: &'static str,
    pub needs: Needs,
    /// The words that this case has and others of its program have not, with `URL`, `PORT`, `EXPIRED`,
    /// `CA`, `OTHER`, `PROXY`, `BIG` and `FOLDER` in them.
    pub words: &'static [&'static str],
    pub way: Way,
}

const fn case(program: &'static str, what: &'static str, words: &'static [&'static str]) -> Case {
    Case { program, what, needs: Needs::Page, words, way: Way::Manager }
}

impl Case {
    /// All words of the command, with `SCRIPTS` in them, too.
    pub fn command_line(&self) -> Vec<&'static str> {
        let words = self.words;
        match self.program {
            "curl" => [&["-sS"], words].concat(),
            "wget" => [&["-q", "-O-"], words].concat(),
            "Python" => {
                let first = ["SCRIPTS/programs.py", words[0], "localhost", "PORT", "CA"];
                [&first, &words[1..]].concat()
            }
            _ => words.to_vec(),
        }
    }

    const fn at_site(self) -> Self {
        Self { needs: Needs::Pages, ..self }
    }

    const fn over_tls13(self) -> Self {
        Self { needs: Needs::Tls13, ..self }
    }

    const fn goes(self, way: Way) -> Self {
        Self { way, ..self }
    }
}

/// All cases, in the order of the document.
pub static CASES: &[Case] = &[
    case("curl", "a page", &["--cacert", "CA", "URL/page"]),
    case(
        "curl",
        "through a proxy",
        &["--proxy", "http://127.0.0.1:PROXY", "--cacert", "CA", "URL/page"],
    ),
    case("curl", "HTTP/1.1", &["--http1.1", "--cacert", "CA", "-w", TOLD, "URL/page"]).at_site(),
    case("curl", "HTTP/2", &["--http2", "--cacert", "CA", "-w", TOLD, "URL/page"]).at_site(),
    case(
        "curl",
        "two at once over HTTP/2",
        &["--no-progress-meter", "-Z", "--cacert", "CA", "URL/page", "URL/page"],
    )
    .at_site(),
    case("curl", "download", &["--cacert", "CA", "URL/big"]).at_site(),
    case("curl", "range", &["-r", "1000-1999", "--cacert", "CA", "URL/big"]).at_site(),
    case("curl", "upload", &["--cacert", "CA", "-T", "BIG", "-w", "%{http_code}", "URL/up/FILE"])
        .at_site(),
    case(
        "curl",
        "upload over HTTP/1.1",
        &["--http1.1", "--cacert", "CA", "-T", "BIG", "-w", "%{http_code}", "URL/up/FILE"],
    )
    .at_site(),
    case(
        "curl",
        "--resolve",
        &["--resolve", "localhost:PORT:127.0.0.1", "--cacert", "CA", "URL/page"],
    ),
    case("curl", "by address", &["--cacert", "CA", "https://127.0.0.1:PORT/page"]).at_site(),
    case("curl", "--interface", &["--interface", "127.0.0.1", "--cacert", "CA", "URL/page"]),
    case("curl", "TLS 1.3 or nothing", &["--tlsv1.3", "--cacert", "CA", "URL/page"]).over_tls13(),
    case("curl", "--tls-max 1.2", &["--tls-max", "1.2", "--cacert", "CA", "URL/page"])
        .goes(Way::Directly("TLS 1.3")),
    case(
        "curl",
        "its own ciphers",
        &["--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256", "--cacert", "CA", "URL/page"],
    ),
    case(
        "curl",
        "not the suite of hops",
        &["--tls13-ciphers", "TLS_AES_256_GCM_SHA384", "--cacert", "CA", "URL/page"],
    )
    .goes(Way::Directly("TLS_AES_128_GCM_SHA256")),
    case("curl", "-k", &["-k", "URL/page"]).goes(Way::Directly("verify")),
    case("curl", "another authority", &["--cacert", "OTHER", "URL/page"]),
    case(
        "curl",
        "wrong name",
        &[
            "--resolve",
            "other.test:PORT:127.0.0.1",
            "--cacert",
            "CA",
            "https://other.test:PORT/page",
        ],
    ),
    case("curl", "expired", &["--cacert", "CA", "https://localhost:EXPIRED/page"]).at_site(),
    case("curl", "pinned key, another", &["--pinnedpubkey", PIN, "--cacert", "CA", "URL/page"]),
    case("curl", "OCSP stapling wanted", &["--cert-status", "--cacert", "CA", "URL/page"])
        .goes(Way::Directly("OCSP")),
    case("Python", "urllib", &["urllib"]),
    case("Python", "TLS after words without", &["upgrade", "PROXY"]),
    case("Python", "requests", &["requests"]),
    case("Python", "httpx, HTTP/2", &["httpx"]).at_site(),
    case("Python", "httpx, asyncio", &["httpx_asyncio"]).at_site(),
    case("Python", "aiohttp", &["aiohttp"]).at_site(),
    case("Python", "asyncio", &["asyncio"]),
    case("Python", "asyncio, the system's authorities", &["asyncio_wrong_ca"]),
    case("Python", "all that a socket tells", &["sockets"]),
    case("Python", "epoll, before the handshake", &["nonblocking"]),
    case("Python", "memory BIOs", &["memory"]),
    case("Python", "libssl by dlsym", &["dlsym"]).goes(Way::Directly("past Rejoin")),
    case("Python", "the same, a copy", &["dlsym", "SSL_dup"]).goes(Way::Directly("past Rejoin")),
    case("Python", "the same, in a BIO", &["dlsym", "BIO_new_ssl"])
        .goes(Way::Directly("past Rejoin")),
    case("Python", "a time limit", &["timeout"]),
    case("Python", "fork after the handshake", &["fork"]),
    case("Python", "eight threads", &["threads"]),
    case("Python", "the system's authorities", &["wrong_ca"]),
    case("Python", "wrong name", &["wrong_name"]),
    case("Python", "no name is checked", &["no_hostname"]),
    case("Python", "TLS 1.3 or nothing", &["tls13_only"]).over_tls13(),
    case("Python", "TLS 1.2 at most", &["tls12_only"]).goes(Way::Directly("TLS 1.3")),
    case("Python", "nothing is verified", &["unverified"]).goes(Way::Directly("verify")),
    case("wget", "a page", &["--ca-certificate=CA", "URL/page"]),
    case("wget", "download", &["--ca-certificate=CA", "URL/big"]).at_site(),
    case("wget", "two pages", &["--ca-certificate=CA", "URL/page", "URL/page"]).at_site(),
    case("wget", "another authority", &["--ca-certificate=OTHER", "URL/page"]),
    case("wget", "expired", &["--ca-certificate=CA", "https://localhost:EXPIRED/page"]).at_site(),
    case(
        "git",
        "clone",
        &["-c", "http.sslCAInfo=CA", "clone", "-q", "URL/repository.git", "FOLDER/clone"],
    )
    .at_site(),
    case("git", "ls-remote", &["-c", "http.sslCAInfo=CA", "ls-remote", "URL/repository.git"])
        .at_site(),
    case(
        "git",
        "another authority",
        &["-c", "http.sslCAInfo=OTHER", "ls-remote", "URL/repository.git"],
    )
    .at_site(),
    case(
        "git",
        "expired",
        &["-c", "http.sslCAInfo=CA", "ls-remote", "https://localhost:EXPIRED/repository.git"],
    )
    .at_site(),
    case("C", "a callback for each certificate", &["localhost", "PORT", "CA"]),
    case("C", "a callback that refuses", &["localhost", "PORT", "CA", "refuse"]),
    case("C", "a callback that overrides", &["localhost", "PORT", "CA", "override"]),
    case("C", "the same, and says that all is well", &["localhost", "PORT", "CA", "pretend"]),
    case("C", "a callback of the store", &["localhost", "PORT", "CA", "store"]),
    case("C", "one that says that all is well", &["localhost", "PORT", "CA", "store-pretend"]),
    case("C", "a store that checks no signature", &["localhost", "PORT", "CA", "store-unsigned"]),
    case("C", "a function for all", &["localhost", "PORT", "CA", "all"]),
    case("C", "a handshake that a write finishes", &["localhost", "PORT", "CA", "implicit"]),
    case("C", "the same, another authority", &["localhost", "PORT", "OTHER", "implicit"]),
    case("C", "wrong name", &["other.test", "PORT", "CA"]),
];

/// The words that curl prints of a connection.
const TOLD: &str =
    "%{http_version} %{ssl_verify_result} %{remote_ip} %{remote_port} %{local_ip} %{num_connects}";
const PIN: &str = "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
