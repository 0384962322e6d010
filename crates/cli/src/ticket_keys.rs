//! The ticket keys of a cache as metrics.

use rejoin_serve::metrics::{Meters, by};
use rejoin_store::Store;
use rejoin_tickets::{KeyRing, KeyState};

/// The public facts about a ring of ticket keys.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TicketKeys {
    age_s: Option<u64>,
    next_turn_s: Option<u64>,
    upcoming: u64,
    encrypting: u64,
    opening: u64,
}

impl TicketKeys {
    /// Reads those of a cache; none if it has no keys, or another process holds them.
    pub(crate) fn of(store: &Store) -> Self {
        let now_s = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let ring = store.ring().ok().flatten();
        ring.map_or_else(Self::default, |ring| Self::at(&ring, now_s))
    }

    fn at(ring: &KeyRing, now_s: u64) -> Self {
        let count = |state| ring.list(now_s).filter(|key| key.state == state).count() as u64;
        let encrypting = ring.list(now_s).find(|key| key.state == KeyState::Encrypting);
        Self {
            age_s: encrypting.map(|key| key.age_s),
            next_turn_s: ring.next_turn_s(now_s),
            upcoming: count(KeyState::Upcoming),
            encrypting: count(KeyState::Encrypting),
            opening: count(KeyState::Opening),
        }
    }

    /// Adds them to other metrics.
    pub(crate) fn add_to(&self, meters: &mut Meters) {
        let Self { age_s, next_turn_s, upcoming, encrypting, opening } = *self;
        let help = "Time since the ticket key that encrypts now was made";
        meters.gauge_if_known("ticket_key_age_seconds", help, age_s);
        let help = "Time at which the next ticket key is to encrypt, in seconds since 1970; it is past \
                    if the rotation is overdue";
        meters.gauge_if_known("ticket_key_next_rotation_timestamp_seconds", help, next_turn_s);
        let states = [("upcoming", upcoming), ("encrypting", encrypting), ("opening", opening)];
        meters.gauges("ticket_keys", "Ticket keys by their use", by("state", states));
    }
}

#[cfg(test)]
mod tests {
    use rejoin_serve::metrics::{Format, Labels};
    use rejoin_tickets::Schedule;

    use super::*;

    #[test]
    fn an_overdue_rotation_lies_in_the_past() {
        let schedule = Schedule::new(10_000, 20_000, 100).expect("a schedule");
        let mut ring = KeyRing::new(schedule);
        ring.rotate(1_000, &mut [1; 32]).expect("a key");
        ring.rotate(11_000 - 100, &mut [2; 32]).expect("a key");
        let told = |now_s| {
            let mut meters = Meters::new(Labels::new());
            TicketKeys::at(&ring, now_s).add_to(&mut meters);
            let text = meters.text(Format::Prometheus);
            let value = |name: &str| -> u64 {
                let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
                line.unwrap_or_else(|| panic!("no {name}: {text}")).parse().expect("a number")
            };
            [
                value("rejoin_ticket_key_age_seconds"),
                value("rejoin_ticket_key_next_rotation_timestamp_seconds"),
                value("rejoin_ticket_keys{state=\"upcoming\"}"),
                value("rejoin_ticket_keys{state=\"opening\"}"),
            ]
        };
        assert_eq!(told(10_950), [9_950, 11_000, 1, 0]);
        assert_eq!(told(22_000), [11_100, 21_000, 0, 1]);
    }
}
