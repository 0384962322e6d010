//! Logs as they lie about: plain, gzipped, or compressed by zstd.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::error::Error;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The last bytes of the magic number of a frame that is passed over, as pzstd writes before each of its own (RFC 8878, section
/// 3.1.2). The first byte is 0x50 to 0x5f.
const SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];
/// Compressions that are not read: the first bytes, the name, and the program that prints the content.
const OTHERS: [(&[u8], &str, &str); 3] = [
    (b"BZh", "bzip2", "bzcat"),
    (b"\xfd7zXZ", "xz", "xzcat"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4cat"),
];
/// The bytes by which compressions are recognised.
const FIRST_BYTES: u64 = 5;
/// The bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Recognises the compression by the first bytes, and returns what is inside. Several compressed logs may follow each
/// other in one input.
pub(crate) fn opened<'a>(mut input: impl Read + 'a) -> Result<Box<dyn BufRead + 'a>, Error> {
    let mut first = Vec::new();
    let read = input.by_ref().take(FIRST_BYTES).read_to_end(&mut first);
    read.map_err(|cause| Error::Read { line: 0, cause })?;
    if let Some((_, by, program)) = OTHERS.iter().find(|(begins, ..)| first.starts_with(begins)) {
        return Err(Error::Compressed { by, program });
    }
    let (gzip, zstd) = (first.starts_with(&GZIP), first.starts_with(&ZSTD) || is_skipped(&first));
    let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(first).chain(input));
    Ok(match (gzip, zstd) {
        (true, _) => Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(whole))),
        (_, true) => Box::new(BufReader::with_capacity(BUFFER_BYTES, Frames::of(whole))),
        _ => Box::new(whole),
    })
}

/// The frames of zstd, one after the other.
struct Frames<R> {
    input: Noted<R>,
    decoder: Box<FrameDecoder>,
    is_within: bool,
}

impl<R: BufRead> Frames<R> {
    fn of(input: R) -> Self {
        let input = Noted { input, has_ended: false };
        Self { input, decoder: Box::new(FrameDecoder::new()), is_within: false }
    }

    /// Begins the next frame that has content. Returns false if there is none.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.input.input.fill_buf()?.is_empty() {
                return Ok(false);
            }
            let length = match self.decoder.init(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => u64::from(length),
                Err(error) => return Err(self.damaged(&error)),
            };
            // pzstd writes one before each of its own (RFC 8878, section 3.1.2).
            if io::copy(&mut self.input.by_ref().take(length), &mut io::sink())? < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn damaged(&self, error: &dyn std::fmt::Display) -> io::Error {
        match self.input.has_ended {
            true => io::ErrorKind::UnexpectedEof.into(),
            false => io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {error}")),
        }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_within && !self.begin()? {
                return Ok(0);
            }
            self.is_within = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.decoder.decode_blocks(&mut self.input, one);
                decoded.map_err(|error| self.damaged(&error))?;
            }
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            self.is_within = false;
        }
    }
}

/// An input that remembers whether it was read to its end.
struct Noted<R> {
    input: R,
    has_ended: bool,
}

impl<R: Read> Read for Noted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.input.read(buffer)?;
        self.has_ended |= length == 0 && !buffer.is_empty();
        Ok(length)
    }
}

fn is_skipped(first: &[u8]) -> bool {
    first.get(1..4) == Some(&SKIPPED) && first[0] >> 4 == 5
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        opened(bytes).expect("a known compression").read_to_end(&mut text)?;
        Ok(text)
    }

    fn gzipped(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn a_compression_that_is_not_read_is_named() {
        for (begins, expected, _) in OTHERS {
            let opened = opened(&[begins, b"anything"].concat()[..]).map(|_| ());
            let Err(Error::Compressed { by, .. }) = opened else { panic!("{opened:?}") };
            assert_eq!(by, expected);
        }
    }

    #[test]
    fn the_first_bytes_tell_the_compression() {
        let zstd = |text: &[u8]| compress_to_vec(text, CompressionLevel::Fastest);
        for text in ["", "a", "a line\n", &"many lines\n".repeat(40_000)] {
            let text = text.as_bytes();
            assert_eq!(read(text).expect("plain"), text);
            for compressed in [gzipped(text), zstd(text)] {
                assert_eq!(read(&compressed).expect("whole"), text);
                let twice = [&compressed[..], &compressed].concat();
                assert_eq!(read(&twice).expect("two"), [text, text].concat());
                if text.len() > 1 {
                    let cut = read(&compressed[..compressed.len() - 1]).map_err(|cut| cut.kind());
                    assert_eq!(cut, Err(io::ErrorKind::UnexpectedEof));
                }
            }
        }
    }

    #[test]
    fn frames_that_are_to_be_skipped_are_skipped() {
        let frame = compress_to_vec(&b"a line\n"[..], CompressionLevel::Fastest);
        let skipped: &[u8] = &[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4];
        let parts = [skipped, &frame, skipped, skipped, &frame, skipped];
        assert_eq!(read(&parts.concat()).expect("two"), b"a line\na line\n");
        let cut = read(&skipped[..10]).map_err(|cut| cut.kind());
        assert_eq!(cut, Err(io::ErrorKind::UnexpectedEof));
    }
}
