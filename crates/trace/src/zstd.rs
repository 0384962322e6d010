//! Files compressed by zstd (RFC 8878): frames one behind the other, and those to be passed over.

use std::io::{self, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The first bytes of a frame.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The last bytes of the magic number of a frame to be passed over, as pzstd writes before each of its own (RFC 8878, section
/// 3.1.2). The first byte is 0x50 to 0x5f.
const PASSED_OVER: [u8; 3] = [0x2a, 0x4d, 0x18];

/// A reader of what is in the frames of a source. Its memory is that of a frame's window.
pub struct Zstd<R> {
    source: Noted<R>,
    decoder: Box<FrameDecoder>,
    is_within_frame: bool,
    /// The error that comes after what precedes it.
    failure: Option<io::Error>,
}

/// A block that is the last of its frame and has nothing, and a checksum, which a frame may have (RFC 8878, section 3.1.1.2).
const NOTHING_MORE: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

impl<R: Read> Zstd<R> {
    /// Makes a reader. A frame whose window is larger than the decoder's own bound is an error.
    pub fn new(source: R) -> Self {
        let source = Noted { source, has_ended: false };
        Self {
            source,
            decoder: Box::new(FrameDecoder::new()),
            is_within_frame: false,
            failure: None,
        }
    }

    /// Bounds the window of a frame, in bytes.
    #[must_use]
    pub fn with_largest_window(mut self, bytes: u64) -> Self {
        self.decoder.set_max_window_size(bytes);
        self
    }

    /// Begins the next frame that has content. Returns false at the end of the source.
    fn begin_frame(&mut self) -> io::Result<bool> {
        loop {
            let mut first = Vec::new();
            if self.source.by_ref().take(1).read_to_end(&mut first)? == 0 {
                return Ok(false);
            }
            let length = match self.decoder.init(&mut (&first[..]).chain(&mut self.source)) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => u64::from(length),
                Err(error) => return Err(self.damaged(error)),
            };
            if io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Decodes a block. The decoder holds back a window of what it has decoded, until the frame ends: where one cannot be
    /// decoded, the frame is ended, so that what precedes is read before the error.
    fn decode_block(&mut self) -> io::Result<()> {
        let one = || BlockDecodingStrategy::UptoBlocks(1);
        let Err(error) = self.decoder.decode_blocks(&mut self.source, one()) else { return Ok(()) };
        let error = self.damaged(error);
        if self.decoder.decode_blocks(&NOTHING_MORE[..], one()).is_err() {
            return Err(error);
        }
        self.failure = Some(error);
        Ok(())
    }

    fn damaged(&self, error: FrameDecoderError) -> io::Error {
        match self.source.has_ended {
            true => io::ErrorKind::UnexpectedEof.into(),
            false => io::Error::other(error),
        }
    }
}

impl<R> std::fmt::Debug for Zstd<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zstd").finish_non_exhaustive()
    }
}

/// Returns true if a source that begins so is compressed by zstd. Four bytes tell.
pub fn begins_zstd(first: &[u8]) -> bool {
    match first {
        [first, rest @ ..] if rest.starts_with(&PASSED_OVER) => first >> 4 == 5,
        first => first.starts_with(&MAGIC),
    }
}

/// Reads what is in the frames.
///
/// # Errors
/// A source that ends within a frame is [`io::ErrorKind::UnexpectedEof`].
impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_within_frame
                && let Some(failure) = self.failure.take()
            {
                return Err(failure);
            }
            if !self.is_within_frame && !self.begin_frame()? {
                return Ok(0);
            }
            self.is_within_frame = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decode_block()?;
            }
            match self.decoder.read(space)? {
                0 if !space.is_empty() => self.is_within_frame = false,
                read => return Ok(read),
            }
        }
    }
}

/// A source that remembers whether it was read to its end.
struct Noted<R> {
    source: R,
    has_ended: bool,
}

impl<R: Read> Read for Noted<R> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(space)?;
        self.has_ended |= read == 0 && !space.is_empty();
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    const PASSED: [u8; 12] = [0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4];

    fn read(bytes: &[u8]) -> Result<Vec<u8>, io::ErrorKind> {
        assert!(begins_zstd(bytes));
        let mut text = Vec::new();
        Zstd::new(bytes).read_to_end(&mut text).map_err(|error| error.kind())?;
        Ok(text)
    }

    #[test]
    fn frames_are_read_and_those_between_passed_over() {
        let frame = compress_to_vec(&b"a line\n"[..], CompressionLevel::Fastest);
        let parts: [&[u8]; 6] = [&PASSED, &frame, &PASSED, &PASSED, &frame, &PASSED];
        assert_eq!(read(&parts.concat()), Ok(b"a line\na line\n".to_vec()));
        assert_eq!(read(&frame), Ok(b"a line\n".to_vec()));
    }

    #[test]
    fn a_cut_is_told_from_damage() {
        let mut frame = compress_to_vec(&[7; 100_000][..], CompressionLevel::Fastest);
        for cut in [5, 6, 9, frame.len() - 1] {
            assert_eq!(read(&frame[..cut]), Err(io::ErrorKind::UnexpectedEof), "{cut}");
        }
        assert_eq!(read(&PASSED[..10]), Err(io::ErrorKind::UnexpectedEof));
        // A block of the reserved kind.
        let header = frame.len() - 4;
        frame[header..].fill(0xff);
        assert!(read(&frame).is_err());
    }

    #[test]
    fn what_precedes_a_cut_is_read() {
        let lines: Vec<u8> =
            (0..100_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let frame = compress_to_vec(&lines[..], CompressionLevel::Fastest);
        // Blocks have up to 128 KiB.
        for (cut, least) in [(frame.len() - 5, lines.len() - (128 << 10)), (frame.len() / 2, 1)] {
            let mut text = Vec::new();
            let failed = Zstd::new(&frame[..cut]).read_to_end(&mut text).map_err(|cut| cut.kind());
            assert_eq!(failed, Err(io::ErrorKind::UnexpectedEof));
            assert!(text.len() >= least && lines.starts_with(&text), "{} of {least}", text.len());
        }
    }

    #[test]
    fn a_window_has_a_bound() {
        let frame = compress_to_vec(&[7; 3 << 20][..], CompressionLevel::Fastest);
        let read = Zstd::new(&frame[..]).with_largest_window(1 << 10).read_to_end(&mut Vec::new());
        assert!(read.is_err());
    }
}
