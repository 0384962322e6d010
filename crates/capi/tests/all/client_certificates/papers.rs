//! The authorities, certificates and revocation lists of all situations, made once.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use openssl::x509::X509;
use rejoin_testkit::certificates::rcgen::{
    CertificateParams, ExtendedKeyUsagePurpose, SerialNumber, date_time_ymd,
};
use rejoin_testkit::certificates::{Authority, Pair};

/// The client on one of the revocation lists.
const REVOKED: u64 = 7;
/// The time for which the certificate of `brief.pem`, the authority's in `passing.pem`, and `brief-list.pem` hold from now on. Situations move the clock farther, and
/// less than the two hours after which OpenSSL drops sessions.
const BRIEF: Duration = Duration::from_secs(3_600);

/// The folder that OpenSSL finds both authorities in, and that with a revocation list of each, too.
const FOLDERS: [&str; 2] = ["authorities", "lists"];

/// Files, by name.
pub(crate) struct Papers(Vec<(String, String)>);

impl Papers {
    pub(crate) fn of_all() -> &'static Self {
        static PAPERS: OnceLock<Papers> = OnceLock::new();
        PAPERS.get_or_init(Self::new)
    }

    fn new() -> Self {
        let [one, other] = [(); 2].map(|()| Authority::new());
        let below = one.below();
        let somebody = client(&one, "somebody", |parameters| {
            parameters.serial_number = Some(SerialNumber::from(REVOKED));
        });
        let neighbour = client(&one, "neighbour", |_| {});
        let stranger = client(&other, "stranger", |_| {});
        let deep = client(&below, "deep", |_| {}) + &below.pem();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let brief = client(&one, "brief", |parameters| {
            parameters.not_after = date_time_ymd(1970, 1, 1) + now + BRIEF;
        });
        let passing = one.below_with(|parameters| {
            parameters.not_after = date_time_ymd(1970, 1, 1) + now + BRIEF;
        });
        let passing = client(&passing, "passing", |_| {}) + &passing.pem();
        let files = [
            ("one.pem", one.pem()),
            ("other.pem", other.pem()),
            ("revoked.pem", one.revocation_list(&[REVOKED])),
            ("empty.pem", one.revocation_list(&[])),
            ("brief-list.pem", one.revocation_list_until(&[], now + BRIEF)),
            ("somebody.pem", somebody),
            ("neighbour.pem", neighbour),
            ("stranger.pem", stranger),
            ("deep.pem", deep),
            ("brief.pem", brief),
            ("passing.pem", passing),
        ];
        let files = files.map(|(name, text)| (name.to_owned(), text)).into_iter();
        Self(files.chain([&one, &other].into_iter().flat_map(found_by_hash)).collect())
    }

    pub(crate) fn write(&self, folder: &Path) {
        for name in FOLDERS {
            fs::create_dir_all(folder.join(name)).expect("a folder");
        }
        for (name, text) in &self.0 {
            fs::write(folder.join(name), text).expect("a file");
        }
    }
}

/// Returns an authority's certificate in each of the folders, and its empty revocation list in the second one, under the
/// names that OpenSSL looks for (`openssl-rehash(1)`).
fn found_by_hash(authority: &Authority) -> [(String, String); 3] {
    let certificate = X509::from_der(authority.der()).expect("a certificate");
    let hash = certificate.subject_name_hash();
    let [alone, with_lists] = FOLDERS;
    [
        (format!("{alone}/{hash:08x}.0"), authority.pem()),
        (format!("{with_lists}/{hash:08x}.0"), authority.pem()),
        (format!("{with_lists}/{hash:08x}.r0"), authority.revocation_list(&[])),
    ]
}

/// Returns a client's certificate and its key.
fn client(
    authority: &Authority,
    name: &str,
    change: impl FnOnce(&mut CertificateParams),
) -> String {
    let Pair { certificate, key, .. } = authority.issue_with(&[name], |parameters| {
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(parameters);
    });
    certificate + &key
}
