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
    /// With `URL`, `PORT`, `EXPIRED`, `CA`, `OTHER`, `PROXY`, `BIG`, `FOLDER` and `SCRIPTS` in them.
    pub words: &'static [&'static str],
    pub way: Way,
}

const fn case(program: &'static str, what: &'static str, words: &'static [&'static str]) -> Case {
    Case { program, what, needs: Needs::Page, words, way: Way::Manager }
}

impl Case {
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

const CURL: &str = "-sS";

/// All cases, in the order of the document.
pub static CASES: &[Case] = &[
    case("curl", "a page", &[CURL, "--cacert", "CA", "URL/page"]),
    case(
        "curl",
        "through a proxy",
        &[CURL, "--proxy", "http://127.0.0.1:PROXY", "--cacert", "CA", "URL/page"],
    ),
    case("curl", "HTTP/1.1", &[CURL, "--http1.1", "--cacert", "CA", "-w", TOLD, "URL/page"])
        .at_site(),
    case("curl", "HTTP/2", &[CURL, "--http2", "--cacert", "CA", "-w", TOLD, "URL/page"]).at_site(),
    case(
        "curl",
        "two at once over HTTP/2",
        &[CURL, "--no-progress-meter", "-Z", "--cacert", "CA", "URL/page", "URL/page"],
    )
    .at_site(),
    case("curl", "download", &[CURL, "--cacert", "CA", "URL/big"]).at_site(),
    case("curl", "range", &[CURL, "-r", "1000-1999", "--cacert", "CA", "URL/big"]).at_site(),
    case(
        "curl",
        "upload",
        &[CURL, "--cacert", "CA", "-T", "BIG", "-w", "%{http_code}", "URL/up/FILE"],
    )
    .at_site(),
    case(
        "curl",
        "upload over HTTP/1.1",
        &[CURL, "--http1.1", "--cacert", "CA", "-T", "BIG", "-w", "%{http_code}", "URL/up/FILE"],
    )
    .at_site(),
    case(
        "curl",
        "--resolve",
        &[CURL, "--resolve", "localhost:PORT:127.0.0.1", "--cacert", "CA", "URL/page"],
    ),
    case("curl", "by address", &[CURL, "--cacert", "CA", "https://127.0.0.1:PORT/page"]).at_site(),
    case("curl", "--interface", &[CURL, "--interface", "127.0.0.1", "--cacert", "CA", "URL/page"]),
    case("curl", "TLS 1.3 or nothing", &[CURL, "--tlsv1.3", "--cacert", "CA", "URL/page"])
        .over_tls13(),
    case("curl", "--tls-max 1.2", &[CURL, "--tls-max", "1.2", "--cacert", "CA", "URL/page"])
        .goes(Way::Directly("TLS 1.3")),
    case(
        "curl",
        "its own ciphers",
        &[CURL, "--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256", "--cacert", "CA", "URL/page"],
    )
    .goes(Way::Directly("suites")),
    case("curl", "-k", &[CURL, "-k", "URL/page"]).goes(Way::Directly("verify")),
    case("curl", "another authority", &[CURL, "--cacert", "OTHER", "URL/page"]),
    case(
        "curl",
        "wrong name",
        &[
            CURL,
            "--resolve",
            "other.test:PORT:127.0.0.1",
            "--cacert",
            "CA",
            "https://other.test:PORT/page",
        ],
    ),
    case("curl", "expired", &[CURL, "--cacert", "CA", "https://localhost:EXPIRED/page"]).at_site(),
    case(
        "curl",
        "pinned key, another",
        &[CURL, "--pinnedpubkey", PIN, "--cacert", "CA", "URL/page"],
    ),
    case("curl", "OCSP stapling wanted", &[CURL, "--cert-status", "--cacert", "CA", "URL/page"])
        .goes(Way::Directly("OCSP")),
    case("Python", "urllib", &["SCRIPTS/programs.py", "urllib", "localhost", "PORT", "CA"]),
    case(
        "Python",
        "TLS after words without",
        &["SCRIPTS/programs.py", "upgrade", "localhost", "PORT", "CA", "PROXY"],
    ),
    case("Python", "requests", &["SCRIPTS/programs.py", "requests", "localhost", "PORT", "CA"]),
    case("Python", "httpx, HTTP/2", &["SCRIPTS/programs.py", "httpx", "localhost", "PORT", "CA"])
        .at_site(),
    case(
        "Python",
        "httpx, asyncio",
        &["SCRIPTS/programs.py", "httpx_asyncio", "localhost", "PORT", "CA"],
    )
    .at_site(),
    case("Python", "aiohttp", &["SCRIPTS/programs.py", "aiohttp", "localhost", "PORT", "CA"])
        .at_site(),
    case("Python", "asyncio", &["SCRIPTS/programs.py", "asyncio", "localhost", "PORT", "CA"]),
    case(
        "Python",
        "asyncio, the system's authorities",
        &["SCRIPTS/programs.py", "asyncio_wrong_ca", "localhost", "PORT", "CA"],
    ),
    case(
        "Python",
        "all that a socket tells",
        &["SCRIPTS/programs.py", "sockets", "localhost", "PORT", "CA"],
    ),
    case(
        "Python",
        "epoll, before the handshake",
        &["SCRIPTS/programs.py", "nonblocking", "localhost", "PORT", "CA"],
    ),
    case("Python", "memory BIOs", &["SCRIPTS/programs.py", "memory", "localhost", "PORT", "CA"]),
    case("Python", "a time limit", &["SCRIPTS/programs.py", "timeout", "localhost", "PORT", "CA"]),
    case(
        "Python",
        "fork after the handshake",
        &["SCRIPTS/programs.py", "fork", "localhost", "PORT", "CA"],
    ),
    case("Python", "eight threads", &["SCRIPTS/programs.py", "threads", "localhost", "PORT", "CA"]),
    case(
        "Python",
        "the system's authorities",
        &["SCRIPTS/programs.py", "wrong_ca", "localhost", "PORT", "CA"],
    ),
    case("Python", "wrong name", &["SCRIPTS/programs.py", "wrong_name", "localhost", "PORT", "CA"]),
    case(
        "Python",
        "no name is checked",
        &["SCRIPTS/programs.py", "no_hostname", "localhost", "PORT", "CA"],
    ),
    case(
        "Python",
        "TLS 1.3 or nothing",
        &["SCRIPTS/programs.py", "tls13_only", "localhost", "PORT", "CA"],
    )
    .over_tls13(),
    case(
        "Python",
        "TLS 1.2 at most",
        &["SCRIPTS/programs.py", "tls12_only", "localhost", "PORT", "CA"],
    )
    .goes(Way::Directly("TLS 1.3")),
    case(
        "Python",
        "nothing is verified",
        &["SCRIPTS/programs.py", "unverified", "localhost", "PORT", "CA"],
    )
    .goes(Way::Directly("verify")),
    case("wget", "a page", &["-q", "-O-", "--ca-certificate=CA", "URL/page"]),
    case("wget", "download", &["-q", "-O-", "--ca-certificate=CA", "URL/big"]).at_site(),
    case("wget", "two pages", &["-q", "-O-", "--ca-certificate=CA", "URL/page", "URL/page"])
        .at_site(),
    case("wget", "another authority", &["-q", "-O-", "--ca-certificate=OTHER", "URL/page"]),
    case(
        "wget",
        "expired",
        &["-q", "-O-", "--ca-certificate=CA", "https://localhost:EXPIRED/page"],
    )
    .at_site(),
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
    case("C", "a function for all", &["localhost", "PORT", "CA", "all"]),
    case("C", "a handshake that a write finishes", &["localhost", "PORT", "CA", "implicit"]),
    case("C", "the same, another authority", &["localhost", "PORT", "OTHER", "implicit"]),
    case("C", "wrong name", &["other.test", "PORT", "CA"]),
];

/// The words that curl prints of a connection.
const TOLD: &str =
    "%{http_version} %{ssl_verify_result} %{remote_ip} %{remote_port} %{local_ip} %{num_connects}";
const PIN: &str = "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
