//! Java programs on sockets of their own: with the provider they say what they say without it.

use rejoin_testkit::jvm::Jvm;

use super::start;

#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_contexts_offer_what_their_names_say() {
    let managed = start("sockets-names");
    let Some(jvm) = Jvm::new(&managed, "sockets-names") else { return };
    let without = jvm.protocols(false);
    assert!(without.1 && without.0.contains("TLSv1.2: [TLSv1.2]"), "{}", without.0);
    assert_eq!(jvm.protocols(true), without);
}
