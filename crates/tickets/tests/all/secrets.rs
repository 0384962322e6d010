//! No key is left in memory that was given back, and none in any `Debug` output.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rejoin_testkit::alone::alone;
use rejoin_tickets::{KeyRing, Label, PAGE_BYTES, Schedule, ServerKeyForm};

const NOW_S: u64 = 1_800_000_000;
/// A mark that all keys of this test contain, and nothing else does: the secret is made of it.
const MARK: [u8; 8] = [0x5e, 0xc7, 0xe7, 0xa7, 0x5e, 0xc7, 0xe7, 0xa7];

/// Looks at every block of memory as it is given back.
struct Watching;

static LEFT: AtomicUsize = AtomicUsize::new(0);
/// Derived bytes that must not be left either: the start of a cipher key and of a mac key.
static DERIVED: Mutex<[[u8; 8]; 2]> = Mutex::new([MARK; 2]);

// SAFETY: it does what the system's allocator does, and reads blocks that are still allocated.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise. Zeroed, so that all of it may be read later.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is allocated, initialised by `alloc`, and nobody else's any more.
        let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
        if let Ok(derived) = DERIVED.try_lock() {
            let secret = |part: &[u8]| part == MARK || derived.iter().any(|mark| part == mark);
            let left = bytes.windows(8).any(secret);
            LEFT.fetch_add(usize::from(left), Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static WATCHING: Watching = Watching;

fn marked(serial: u8) -> [u8; 32] {
    let mut secret = [serial; 32];
    secret[8..16].copy_from_slice(&MARK);
    secret
}

fn label() -> Label {
    Label::new(b"one").expect("a label")
}

/// Runs in a process of its own, because it looks at the whole program's memory.
#[test]
fn no_key_is_left_behind_or_printed() {
    // A closure, not the function: `alone` reads the test's name from it.
    #[expect(clippy::redundant_closure, reason = "the closure's type names the test")]
    alone(|| look_for_keys());
}

fn look_for_keys() {
    let mut fresh = marked(1);
    let mut ring = KeyRing::new(Schedule::default());
    let first = ring.rotate(NOW_S, &mut fresh).expect("a key");
    assert_eq!(fresh, [0; 32], "taken out of the caller's hands");
    let keys = ring.for_context(&label());
    {
        let key = keys.encrypting(NOW_S).expect("a key");
        let start = |bytes: &[u8; 32]| *bytes.first_chunk::<8>().expect("eight");
        let derived = [start(key.cipher_key()), start(key.mac_key())];
        *DERIVED.lock().expect("marks") = derived;
    }

    // The window shows what is given back unwiped.
    drop(marked(9).to_vec());
    assert_eq!(LEFT.swap(0, Ordering::Relaxed), 1);
    drop(keys.encrypting(NOW_S).expect("a key").mac_key().to_vec());
    assert_eq!(LEFT.swap(0, Ordering::Relaxed), 1);

    for serial in 2..10 {
        ring.rotate(NOW_S, &mut marked(serial)).expect("a key");
    }
    let sealer = ring.sealer(&label());
    let ticket = sealer.seal(NOW_S, &MARK, [0; 12]).expect("a ticket");
    let opened = sealer.open(NOW_S, &ticket);
    let mut page = zeroize::Zeroizing::new([0; PAGE_BYTES]);
    ring.to_page(&mut page);
    let copy = KeyRing::from_page(&page).expect("a page");
    let file = keys.iter().next().map(|key| key.for_server(ServerKeyForm::Raw80));
    let printed = format!("{ring:?} {ring:#?} {keys:?} {keys:#?} {sealer:?} {copy:?}");
    assert!(ring.retire(&first));
    assert!(ring.remove_expired(NOW_S + 10 * 86_400) > 0);
    drop((keys.clone(), keys, sealer, opened, copy, ring, file));
    assert_eq!(LEFT.load(Ordering::Relaxed), 0);

    let bytes = |secret: [u8; 8]| format!("{secret:?}").trim_matches(['[', ']']).to_owned();
    let derived = DERIVED.lock().map(|marks| *marks).expect("marks");
    assert!(printed.contains("Secret(32 bytes)"));
    for secret in [MARK, derived[0], derived[1]] {
        assert!(!printed.contains(&bytes(secret)));
        let hexadecimal: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!printed.contains(&hexadecimal));
    }
}
