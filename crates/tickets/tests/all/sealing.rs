//! Tickets sealed in one context open there and nowhere else, and nothing else opens.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rejoin_tickets::{
    KeyRing, LONGEST_TICKET_BYTES, Label, Opened, Schedule, ServerKeyForm, TicketSealer, Unopened,
};

const NOW_S: u64 = 1_800_000_000;

/// The secret of the vectors: the bytes 0 to 31.
fn ring() -> KeyRing {
    let mut ring = KeyRing::new(Schedule::default());
    ring.rotate(NOW_S, &mut std::array::from_fn(|at| at as u8)).expect("a key");
    ring
}

fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).expect("a label")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Made with OpenSSL's implementation of RFC 5869, for each `INFO` and its length:
/// `openssl kdf -keylen 32 -kdfopt digest:SHA256 -kdfopt hexkey:000102…1f -kdfopt info:INFO HKDF`
#[test]
fn keys_are_derived_as_openssl_derives_them() {
    let ring = ring();
    let keys = ring.for_context(&label("shop.example"));
    let key = keys.encrypting(NOW_S).expect("a key");
    let id = ring.list(NOW_S).next().expect("a key").id;
    assert_eq!(id.to_string(), "abf08546bc9f368d57baf5d8d8c9a276");
    assert_eq!(hex(key.name()), "3891f6e0b8b1480dec63e0613886e4d4");
    assert_eq!(
        hex(key.cipher_key()),
        "f6529d3db21ce193c646e8772a30167ccac1cc9eb9e78beaa7e6ed307346a004"
    );
    assert_eq!(
        hex(key.mac_key()),
        "f1d0ee62a0686cdb7a830c0a08a43424f0f43297e3df2161bd05f0601f8c03c9"
    );
    let ticket = seal(&ring.sealer(&label("shop.example")), b"session");
    assert_eq!(hex(&ticket[..16]), "2e975c50675fdf9f864b5dd5a7eab18d");
}

fn seal(sealer: &TicketSealer, session: &[u8]) -> Vec<u8> {
    sealer.seal(NOW_S, session, [7; 12]).expect("a ticket")
}

#[test]
fn other_servers_get_the_bytes_in_their_order() {
    let keys = ring().for_context(&label("shop.example"));
    let key = keys.encrypting(NOW_S).expect("a key");
    let (name, cipher, mac) = (&key.name()[..], &key.cipher_key()[..], &key.mac_key()[..]);
    let form = |form: ServerKeyForm| {
        let bytes = key.for_server(form).to_vec();
        assert_eq!(bytes.len(), form.bytes());
        bytes
    };
    assert_eq!(form(ServerKeyForm::Raw80), [name, mac, cipher].concat());
    assert_eq!(form(ServerKeyForm::Haproxy), [name, cipher, mac].concat());
    assert_eq!(form(ServerKeyForm::Raw48), [name, &mac[..16], &cipher[..16]].concat());
    assert_eq!(form(ServerKeyForm::Raw32), cipher);
}

#[test]
fn contexts_share_nothing() {
    let ring = ring();
    let (one, two) = (ring.for_context(&label("one")), ring.for_context(&label("two")));
    let of = |keys: &rejoin_tickets::ContextKeys| {
        let key = keys.encrypting(NOW_S).expect("a key");
        [&key.name()[..], key.cipher_key(), key.mac_key()].map(<[u8]>::to_vec)
    };
    let (of_one, of_two) = (of(&one), of(&two));
    assert!(of_one.iter().zip(&of_two).all(|(one, two)| one != two));
    let name = *of_one[0].first_chunk().expect("a name");
    assert!(one.find(NOW_S, &name).is_some());
    assert!(two.find(NOW_S, &name).is_none());
    let ticket = seal(&ring.sealer(&label("one")), b"session");
    assert!(ring.sealer(&label("two")).open(NOW_S, &ticket).is_none());
    assert!(one.find(NOW_S, ticket.first_chunk().expect("a name")).is_none(), "nor with the other");
}

#[test]
fn a_ticket_opens_to_what_was_sealed() {
    let (ring, label) = (ring(), label("one"));
    let (sealer, elsewhere) = (ring.sealer(&label), ring.sealer(&label));
    for length in [0, 1, 15, 16, 17, 1_000, LONGEST_TICKET_BYTES - TicketSealer::OVERHEAD_BYTES] {
        let session = vec![0x5a; length];
        let ticket = seal(&sealer, &session);
        assert_eq!(ticket.len(), length + TicketSealer::OVERHEAD_BYTES);
        let (opened, age) = elsewhere.open(NOW_S, &ticket).expect("ours");
        assert_eq!((&*opened, age), (&session, Opened::Fresh));
        assert!(length < 16 || !ticket.windows(16).any(|part| part == [0x5a; 16]), "sealed");
    }
    let too_long = vec![0; LONGEST_TICKET_BYTES - TicketSealer::OVERHEAD_BYTES + 1];
    assert!(sealer.seal(NOW_S, &too_long, [7; 12]).is_none());
}

#[test]
fn a_ring_without_keys_seals_nothing() {
    let empty = KeyRing::new(Schedule::default());
    assert!(empty.sealer(&label("one")).seal(NOW_S, b"session", [7; 12]).is_none());
    assert!(empty.for_context(&label("one")).encrypting(NOW_S).is_none());
}

#[test]
fn a_ticket_that_was_touched_does_not_open() {
    let sealer = ring().sealer(&label("one"));
    let ticket = seal(&sealer, b"session");
    for bit in 0..ticket.len() * 8 {
        let mut touched = ticket.clone();
        touched[bit / 8] ^= 1 << (bit % 8);
        assert!(sealer.open(NOW_S, &touched).is_none(), "bit {bit}");
    }
    for length in 0..ticket.len() {
        assert!(sealer.open(NOW_S, &ticket[..length]).is_none(), "{length} bytes");
    }
    assert!(sealer.open(NOW_S, &[&ticket[..], &[0]].concat()).is_none());
}

#[test]
fn a_ticket_is_opened_by_who_knows_what_it_is_bound_to() {
    let sealer = ring().sealer(&label("one"));
    let bound = sealer.seal_for(NOW_S, b"id", b"session", [7; 12]).expect("a ticket");
    let opened = |bound_to: &[u8], ticket: &[u8]| {
        sealer.open_for(NOW_S, bound_to, ticket).map(|(session, _)| session.to_vec())
    };
    assert_eq!(opened(b"id", &bound), Ok(b"session".to_vec()));
    assert_eq!(opened(b"another", &bound), Err(Unopened::Altered));
    assert_eq!(opened(b"", &bound), Err(Unopened::Altered));
    assert_eq!(opened(b"", &seal(&sealer, b"session")), Ok(b"session".to_vec()));
    assert_eq!(opened(b"id", &bound[..43]), Err(Unopened::BadLength));
    let elsewhere = ring().sealer(&label("two"));
    assert_eq!(elsewhere.open_for(NOW_S, b"id", &bound).err(), Some(Unopened::UnknownKey));
}

#[test]
fn a_key_that_is_over_is_told_from_one_that_is_unknown() {
    let mut ring = ring();
    let sealed = seal(&ring.sealer(&label("one")), b"session");
    let over_s = NOW_S + 3_600 + 24 * 3_600 + 120;
    ring.rotate(NOW_S, &mut [7; 32]).expect("a key");
    let sealer = ring.sealer(&label("one"));
    let why = |now_s| sealer.open_for(now_s, &[], &sealed).err();
    assert_eq!([over_s - 1, over_s].map(why), [None, Some(Unopened::ExpiredKey)]);
    assert!(sealer.names().any(|name| sealed.starts_with(name)));
    ring.remove_expired(over_s);
    let wiped = ring.sealer(&label("one"));
    assert_eq!(wiped.open_for(over_s, &[], &sealed).err(), Some(Unopened::UnknownKey));
    assert!(!wiped.names().any(|name| sealed.starts_with(name)));
}

#[test]
fn garbage_does_not_open() {
    let sealer = ring().sealer(&label("one"));
    let name = seal(&sealer, b"session")[..16].to_vec();
    let mut random = ChaCha8Rng::seed_from_u64(1);
    for round in 0..20_000 {
        let mut bytes = vec![0; random.random_range(0..300)];
        random.fill_bytes(&mut bytes);
        if round % 2 == 0 {
            bytes = [&name[..], &bytes].concat();
        }
        assert!(sealer.open(random.random(), &bytes).is_none());
    }
    assert!(sealer.open(NOW_S, &[name, vec![0; 1 << 17]].concat()).is_none(), "too long");
}
