//! nginx keeps serving while its workers are killed, and gives no client the session of another.
//!
//! `make soak` does this for ten minutes.

use rejoin_testkit::killing::kill_workers;
use rejoin_testkit::site::Site;

const FOR_S: u64 = 8;

#[test]
fn killed_workers_cost_their_own_connections_only() {
    let mut site = Site::new("kill");
    if let Some(outcome) = kill_workers(&mut site, FOR_S) {
        assert!(outcome.holds(), "{outcome:#?}");
    }
}
