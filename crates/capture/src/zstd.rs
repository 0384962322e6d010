//! Captures compressed by zstd (RFC 8878): frames one behind the other.

use std::io::{self, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::limits::LARGEST_ZSTD_WINDOW_BYTES;

/// A reader of what is in the frames of a source.
pub(crate) struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    is_within_frame: bool,
}

impl<R: Read> Zstd<R> {
    pub(crate) fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(LARGEST_ZSTD_WINDOW_BYTES);
        Self { source, decoder, is_within_frame: false }
    }

    /// Begins the next frame. Returns false at the end of the source.
    fn begin_frame(&mut self) -> io::Result<bool> {
        loop {
            let mut first = Vec::new();
            if self.source.by_ref().take(1).read_to_end(&mut first)? == 0 {
                return Ok(false);
            }
            match self.decoder.init(&mut (&first[..]).chain(self.source.by_ref())) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped = &mut self.source.by_ref().take(length.into());
                    io::copy(skipped, &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_within_frame && !self.begin_frame()? {
                return Ok(0);
            }
            self.is_within_frame = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.decoder.decode_blocks(&mut self.source, one);
                decoded.map_err(io::Error::other)?;
            }
            match self.decoder.read(space)? {
                0 if !space.is_empty() => self.is_within_frame = false,
                read => return Ok(read),
            }
        }
    }
}
