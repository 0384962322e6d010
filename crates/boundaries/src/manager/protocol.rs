//! Messages of the manager's protocol: each is a typed request or answer, or an error. A message that was read and
//! written is read again as the same.

use rejoin_manager::protocol::{
    FRAME_BYTES, LENGTH_BYTES, REQUEST_BYTES, Turn, length, read_answer, read_request,
    write_answer, write_request,
};

pub(crate) fn check(message: &[u8]) {
    if let Some((prefix, rest)) = message.split_first_chunk::<LENGTH_BYTES>() {
        let announced = length(*prefix, REQUEST_BYTES);
        assert!(announced.is_err() || announced.is_ok_and(|bytes| bytes <= REQUEST_BYTES));
        let _ = read_request(rest);
        if let Ok((_, bytes)) = Turn::read(*prefix) {
            assert!(bytes <= FRAME_BYTES);
        }
    }
    if let Ok(request) = read_request(message)
        && let Ok(written) = write_request(&request)
    {
        assert_eq!(read_request(&written[LENGTH_BYTES..]), Ok(request));
    }
    if let Ok(answer) = read_answer(message)
        && let Ok(written) = write_answer(&answer)
    {
        assert_eq!(read_answer(&written[LENGTH_BYTES..]), Ok(answer));
    }
}
