//! The programs, and what each of them does.

use super::dialects::Dialect;
use super::faults::Table;

/// A program and its one task.
#[derive(Debug)]
pub struct Program {
    pub name: &'static str,
    pub(super) dialect: Dialect,
    /// Its command, with `@URL@`, `@PORT@`, `@CA@`, `@SCRIPTS@`, `@PYTHON@`, `@ROOT@` (the folder of extracted packages),
    /// `@NEW@` (of Debian 13's) and `@FOLDER@` (its own) in it.
    pub(super) words: &'static [&'static str],
    pub(super) environment: &'static [(&'static str, &'static str)],
    /// The file that it writes, if not its standard output.
    pub(super) writes: Option<&'static str>,
}

const fn get(name: &'static str, words: &'static [&'static str]) -> Program {
    Program { name, dialect: Dialect::Http, words, environment: &[], writes: None }
}

impl Program {
    const fn over(self, dialect: Dialect) -> Self {
        Self { dialect, ..self }
    }

    const fn with(self, environment: &'static [(&'static str, &'static str)]) -> Self {
        Self { environment, ..self }
    }

    const fn writing(self, file: &'static str) -> Self {
        Self { writes: Some(file), ..self }
    }

    /// Returns true if the table is about its protocol.
    pub(super) fn is_in(&self, table: &Table) -> bool {
        self.dialect == Dialect::Http || !table.is_http
    }
}

/// All programs, in the order of the document.
pub static PROGRAMS: &[Program] = &[
    get("curl", &["curl", "-sS", "--cacert", "@CA@", "@URL@/page"]),
    get("curl, HTTP/1.0", &["curl", "-sS", "--http1.0", "--cacert", "@CA@", "@URL@/page"]),
    get(
        "curl, OpenSSL 3.5",
        &[NEW, PATH, NEW_LIBRARIES, NEW_CURL, "-sS", "--cacert", "@CA@", "@URL@/page"],
    ),
    get("curl --parallel", &["sh", "-c", PARALLEL, "sh", "@CA@", "@URL@/page"]),
    get("wget", &["wget", "-q", "-O-", "-t1", "--ca-certificate=@CA@", "@URL@/page"]),
    get(
        "wget, GnuTLS 3.8",
        &[
            NEW,
            PATH,
            NEW_LIBRARIES,
            NEW_WGET,
            "-q",
            "-O-",
            "-t1",
            "--ca-certificate=@CA@",
            "@URL@/page",
        ],
    ),
    get("wget2", &["wget2", "-q", "-O-", "--tries=1", "--ca-certificate=@CA@", "@URL@/page"]),
    get(
        "aria2c",
        &[
            "aria2c",
            "-q",
            "--max-tries=1",
            "--no-conf",
            "--file-allocation=none",
            "--ca-certificate=@CA@",
            "-d",
            "@FOLDER@",
            "-o",
            "out",
            "@URL@/page",
        ],
    )
    .writing("out"),
    get("lftp", &["timeout", "6", "lftp", "--norc", "-c", LFTP]),
    get(
        "lynx",
        &["lynx", "-cfg=@ROOT@/etc/lynx/lynx.cfg", "-lss=/dev/null", "-source", "@URL@/page"],
    )
    .with(AUTHORITY),
    get("links", &["links", "-ssl.certificates", "2", "-source", "@URL@/page"]).with(AUTHORITY),
    get(
        "w3m",
        &[
            "w3m",
            "-o",
            "ssl_ca_file=@CA@",
            "-o",
            "ssl_verify_server=1",
            "-dump_source",
            "@URL@/page",
        ],
    ),
    get(
        "ffmpeg",
        &[
            "ffmpeg",
            "-v",
            "error",
            "-ca_file",
            "@CA@",
            "-tls_verify",
            "1",
            "-f",
            "data",
            "-i",
            "@URL@/page",
            "-map",
            "0:0",
            "-c",
            "copy",
            "-f",
            "data",
            "-",
        ],
    ),
    get("openssl s_client", &["sh", "-c", S_CLIENT, "sh", "@CA@", "@PORT@"]),
    get("gnutls-cli", &["sh", "-c", GNUTLS_CLI, "sh", "@CA@", "@PORT@"]),
    get("socat", &["sh", "-c", SOCAT, "sh", "@CA@", "@PORT@"]),
    get("Python urllib", &["@PYTHON@", FETCH, "urllib", "@URL@/page", "@CA@"]),
    get(
        "Python urllib, OpenSSL 3.5",
        &[NEW, PATH, NEW_LIBRARIES, NEW_PYTHON, FETCH, "urllib", "@URL@/page", "@CA@"],
    )
    .with(&[("PYTHONHOME", "@NEW@/usr")]),
    get("Python asyncio", &["@PYTHON@", FETCH, "asyncio", "@URL@/page", "@CA@"]),
    get("requests", &["@PYTHON@", FETCH, "requests", "@URL@/page", "@CA@"]),
    get("httpx", &["@PYTHON@", FETCH, "httpx", "@URL@/page", "@CA@"]),
    get("aiohttp", &["@PYTHON@", FETCH, "aiohttp", "@URL@/page", "@CA@"]),
    get("websockets", &["@PYTHON@", FETCH, "websockets", "wss://localhost:@PORT@/", "@CA@"])
        .over(Dialect::WebSocket),
    // It tells servers the version of a rustc that answers within half a second.
    get(
        "pip",
        &[
            "@PYTHON@",
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-cache-dir",
            "--retries",
            "0",
            "--disable-pip-version-check",
            "--index-url",
            "@URL@/simple/",
            "--cert",
            "@CA@",
            "-d",
            "@FOLDER@",
            "sample",
        ],
    )
    .with(&[("PATH", "/usr/bin:/bin")])
    .writing("sample-1.0-py3-none-any.whl"),
    get("Perl LWP", &["perl", "-MLWP::UserAgent", "-e", LWP, "@URL@/page", "@CA@"]).with(PERL),
    get("Perl HTTP::Tiny", &["perl", "-MHTTP::Tiny", "-e", HTTP_TINY, "@URL@/page", "@CA@"])
        .with(PERL),
    get("Ruby", &["ruby", "--disable-gems", "-rnet/http", "-e", RUBY, "@URL@/page", "@CA@"])
        .with(&[("RUBYLIB", RUBYLIB)]),
    get("PHP", &["php8.2", "-n", "-r", PHP, "@URL@/page", "@CA@"]),
    get("git clone", &["git", "clone", "-q", "@URL@/git/sample.git", "c"]).with(GIT).writing("c/a"),
    get("git push", &["sh", "-c", GIT_PUSH, "sh", "@URL@/git/pushed-@PORT@.git"]).with(GIT),
    get("apt-get, root", &["sh", "-c", APT, "sh", "@CA@", "@URL@", "root"]),
    get("apt-get, _apt", &["sh", "-c", APT, "sh", "@CA@", "@URL@", "_apt"]),
    get("psql", &["@ROOT@/usr/lib/postgresql/15/bin/psql", PSQL, "-Atc", "select 1"])
        .over(Dialect::Postgres),
    get(
        "mosquitto_pub",
        &[
            "mosquitto_pub",
            "-h",
            "localhost",
            "-p",
            "@PORT@",
            "--cafile",
            "@CA@",
            "-i",
            "a",
            "-t",
            "t",
            "-q",
            "1",
            "-m",
            "hello",
        ],
    )
    .over(Dialect::Mqtt),
    get(
        "mosquitto_sub",
        &[
            "mosquitto_sub",
            "-h",
            "localhost",
            "-p",
            "@PORT@",
            "--cafile",
            "@CA@",
            "-i",
            "a",
            "-t",
            "t",
            "-C",
            "1",
            // It connects again each second: the more often, the later the last time.
            "-W",
            "5",
        ],
    )
    .over(Dialect::Mqtt),
];

/// The loader of Debian 13's programs, which have a C library of their own.
const NEW: &str = "@NEW@/@LOADER@";
const PATH: &str = "--library-path";
const NEW_LIBRARIES: &str = "@NEW@/usr/lib/@ARCH@";
const NEW_CURL: &str = "@NEW@/usr/bin/curl";
const NEW_WGET: &str = "@NEW@/usr/bin/wget";
const NEW_PYTHON: &str = "@NEW@/usr/bin/python3.13";
const AUTHORITY: &[(&str, &str)] = &[("SSL_CERT_FILE", "@CA@")];
const PARALLEL: &str = "curl -sS --no-progress-meter -Z --cacert $1 $2 -o a $2 -o b; code=$?; \
    touch a b; cat a b; exit $code";
const FETCH: &str = "@SCRIPTS@/fetch.py";
/// It tries again after 30 seconds, and never gives up.
const LFTP: &str =
    "set ssl:ca-file @CA@; set net:max-retries 1; set net:timeout 20; cat @URL@/page";
const S_CLIENT: &str = "printf 'GET /page HTTP/1.0\\r\\n\\r\\n' >asked && exec openssl s_client -quiet \
    -verify_quiet -verify_return_error -CAfile $1 -connect localhost:$2 -servername localhost <asked";
const GNUTLS_CLI: &str = "printf 'GET /page HTTP/1.0\\r\\n\\r\\n' >asked && \
    exec gnutls-cli --logfile=/dev/null --x509cafile $1 -p $2 localhost <asked";
const SOCAT: &str = "printf 'GET /page HTTP/1.0\\r\\n\\r\\n' >asked && exec socat -t 20 - OPENSSL:localhost:$2,cafile=$1 <asked";
const PERL: &[(&str, &str)] =
    &[("PERL5LIB", "@ROOT@/usr/share/perl5:@ROOT@/usr/lib/@ARCH@/perl5/5.36")];
const LWP: &str = "$u=LWP::UserAgent->new(ssl_opts=>{SSL_ca_file=>$ARGV[1]});$r=$u->get($ARGV[0]);\
    print $r->content if $r->is_success;\
    print STDERR $r->status_line,' ',$r->header('X-Died')//'','\n';exit !$r->is_success";
const HTTP_TINY: &str = "$r=HTTP::Tiny->new(verify_SSL=>1,SSL_options=>{SSL_ca_file=>$ARGV[1]})->get($ARGV[0]);\
    print $r->{content} if $r->{success};\
    print STDERR $r->{status},' ',$r->{success}?$r->{reason}:$r->{content};exit !$r->{success}";
const RUBY: &str = "u=URI(ARGV[0]);begin;Net::HTTP.start(u.host,u.port,use_ssl:true,ca_file:ARGV[1],max_retries:0)\
    {|h|r=h.get(u.path);print r.body;warn r.code};rescue => e;warn e.class,e.message;exit 1;end";
const RUBYLIB: &str =
    "@ROOT@/usr/lib/ruby/3.1.0:@ROOT@/usr/lib/@ARCH@/ruby/3.1.0:@ROOT@/usr/lib/ruby/vendor_ruby";
const PHP: &str = "set_error_handler(function($n,$s){fwrite(STDERR,\"$s\\n\");});\
    $b=file_get_contents($argv[1],false,stream_context_create(['ssl'=>['cafile'=>$argv[2]]]));\
    if($b===false)exit(1);echo $b;";
const GIT: &[(&str, &str)] = &[
    ("GIT_SSL_CAINFO", "@CA@"),
    ("GIT_AUTHOR_DATE", "@1000000000"),
    ("GIT_COMMITTER_DATE", "@1000000000"),
];
const GIT_PUSH: &str = "git init -q -b main . && \
    git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a && git push -q $1 main";
const PSQL: &str =
    "host=localhost port=@PORT@ sslmode=verify-full sslrootcert=@CA@ user=a dbname=a";
/// Reads the lists of a repository that has one. What apt says of its speed, and the port, is left out.
const APT: &str = "mkdir -p lists/partial archives/partial && chmod -R a+rwX . && \
    echo \"deb [trusted=yes] $2/apt ./\" >sources.list && \
    apt-get -q -o Dir::Etc::SourceList=$PWD/sources.list -o Dir::Etc::SourceParts=- -o Dir::State::Lists=$PWD/lists \
    -o Dir::Cache::Archives=$PWD/archives -o Debug::NoLocking=1 -o Acquire::https::CaInfo=$1 \
    -o Acquire::Retries=0 -o APT::Sandbox::User=$3 -o Acquire::Languages=none -o Acquire::GzipIndexes=false update >said; \
    code=$?; sed -E '/^Fetched/d; s/localhost:[0-9]+//g; s/\\[IP: [^]]*\\]//' said; cat lists/*Packages; exit $code";
