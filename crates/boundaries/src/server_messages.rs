//! The doctor's parser of a server's handshake messages: what it returns is in the input and within bounds.

use rejoin_doctor::Message;

pub(crate) fn check(bytes: &[u8]) {
    let Some((version, message)) = bytes.split_first() else { return };
    match Message::read(message, version % 2 == 1) {
        Some(Message::ServerHello { session_id_bytes, .. }) => assert!(session_id_bytes <= 32),
        Some(Message::Ticket(new)) => {
            assert!(!new.ticket.is_empty());
            assert!(message.windows(new.ticket.len()).any(|part| part == new.ticket));
            assert!(new.early_data_bytes.is_none_or(|bytes| bytes > 0 && version % 2 == 1));
        }
        _ => {}
    }
}
