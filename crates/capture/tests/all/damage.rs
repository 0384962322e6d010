//! The frames of a capture, and what happens to them between a network and an analyst.

use crate::tunnels::{TUNNELS, tunnelled};

/// A captured frame.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) link: u32,
    pub(crate) time_ns: u64,
    /// The captured bytes.
    pub(crate) data: Vec<u8>,
    /// The length on the wire.
    pub(crate) length: u32,
    /// Its number in the whole capture, from 1.
    pub(crate) number: u64,
    /// True while all of its bytes are there.
    pub(crate) is_whole: bool,
}

impl Frame {
    fn new(link: u32, time_ns: u64, data: &[u8], length: u32, before: &[Self]) -> Self {
        let number = before.len() as u64 + 1;
        Self { link, time_ns, data: data.to_vec(), length, number, is_whole: true }
    }
}

/// A generator of random numbers (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    fn is_one_in(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

type Apply = Box<dyn Fn(&[Frame], &mut Random) -> Vec<Frame>>;

/// A kind of damage.
pub(crate) struct Transform {
    pub(crate) name: String,
    pub(crate) apply: Apply,
}

fn named(name: String, apply: impl Fn(&[Frame], &mut Random) -> Vec<Frame> + 'static) -> Transform {
    Transform { name, apply: Box::new(apply) }
}

/// All kinds of damage, more than a hundred, and tunnels, which damage nothing.
pub(crate) fn all() -> Vec<Transform> {
    let mut all = Vec::new();
    for tunnel in TUNNELS {
        all.push(named(format!("in {}", tunnel.0), move |frames, _| tunnelled(frames, tunnel)));
    }
    for percent in [1, 2, 5, 10, 15, 20, 30, 40, 50] {
        for seed in 0..3 {
            all.push(named(format!("loss of {percent} %, {seed}"), move |frames, random| {
                lossy(frames, &mut Random(random.0 + (seed << 32)), percent)
            }));
        }
    }
    for snap in [
        64, 68, 80, 90, 96, 110, 120, 128, 144, 160, 192, 200, 220, 256, 262, 300, 350, 400, 450,
        512, 600, 700, 800, 900, 1_000, 1_200, 1_400, 1_500,
    ] {
        all.push(named(format!("snap length {snap}"), move |frames, _| snapped(frames, snap)));
    }
    for lost in [false, true] {
        for percent in [20, 50, 100] {
            all.push(named(
                format!("direction {lost} loses {percent} %"),
                move |frames, random| {
                    let mut frames = frames.to_vec();
                    frames.retain(|frame| side(frame) != Some(lost) || !random.is_one_in(percent));
                    frames
                },
            ));
        }
    }
    for skew_us in [100, 500, 1_000, 5_000, 20_000, 100_000, 1_000_000] {
        for ahead in [false, true] {
            all.push(named(format!("skew of {skew_us} µs, {ahead}"), move |frames, _| {
                skewed(frames, skew_us * 1_000, ahead)
            }));
        }
    }
    for window in [2, 3, 5, 10, 30, 100] {
        all.push(named(format!("reordered by {window}"), move |frames, random| {
            reordered(frames, random, window)
        }));
    }
    for percent in [10, 50, 100] {
        all.push(named(format!("{percent} % twice"), move |frames, random| {
            copied(frames, random, percent, false)
        }));
        all.push(named(format!("{percent} % again by NAT"), move |frames, random| {
            copied(frames, random, percent, true)
        }));
    }
    for (snap, percent) in [(128, 10), (256, 5), (262, 30), (400, 20), (600, 40), (1_000, 30)] {
        all.push(named(format!("snap {snap}, loss {percent} %"), move |frames, random| {
            lossy(&snapped(frames, snap), random, percent)
        }));
    }
    for run in [3, 10, 30] {
        all.push(named(format!("runs of {run} lost"), move |frames, random| {
            runs_lost(frames, random, run)
        }));
    }
    for percent in [2, 10, 30] {
        all.push(named(format!("begins at {percent} %"), move |frames, _| {
            frames[frames.len() * percent / 100..].to_vec()
        }));
        all.push(named(format!("skewed, reordered, loss {percent} %"), move |frames, random| {
            lossy(&reordered(&skewed(frames, 2_000_000, true), random, 5), random, percent as u64)
        }));
    }
    all
}

fn lossy(frames: &[Frame], random: &mut Random, percent: u64) -> Vec<Frame> {
    frames.iter().filter(|_| !random.is_one_in(percent)).cloned().collect()
}

fn runs_lost(frames: &[Frame], random: &mut Random, run: u64) -> Vec<Frame> {
    let mut left = 0;
    let mut kept = Vec::new();
    for frame in frames {
        if left == 0 && random.is_one_in(2) {
            left = 1 + random.below(run);
        }
        match left {
            0 => kept.push(frame.clone()),
            _ => left -= 1,
        }
    }
    kept
}

fn snapped(frames: &[Frame], snap: usize) -> Vec<Frame> {
    let mut frames = frames.to_vec();
    for frame in &mut frames {
        frame.is_whole &= frame.data.len() <= snap;
        frame.data.truncate(snap);
    }
    frames
}

fn skewed(frames: &[Frame], by_ns: u64, ahead: bool) -> Vec<Frame> {
    let mut frames = frames.to_vec();
    for frame in &mut frames {
        if side(frame) == Some(ahead) {
            frame.time_ns = frame.time_ns.saturating_add(by_ns);
        }
    }
    frames.sort_by_key(|frame| frame.time_ns);
    frames
}

fn reordered(frames: &[Frame], random: &mut Random, window: u64) -> Vec<Frame> {
    let mut placed: Vec<(u64, &Frame)> =
        (0..).zip(frames).map(|(place, frame)| (place + random.below(window), frame)).collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, frame)| frame.clone()).collect()
}

/// Repeats frames some places later, or sends them again from other addresses.
fn copied(frames: &[Frame], random: &mut Random, percent: u64, by_nat: bool) -> Vec<Frame> {
    let mut all = Vec::new();
    for frame in frames {
        all.push(frame.clone());
        if random.is_one_in(percent) {
            let mut copy = frame.clone();
            copy.time_ns = copy.time_ns.saturating_add(40_000);
            if by_nat {
                translate(&mut copy);
            }
            all.push(copy);
        }
    }
    all
}

/// The first byte of the IP packet in a frame.
pub(crate) fn ip_at(frame: &Frame) -> Option<usize> {
    let at = match frame.link {
        1 => {
            let kind = frame.data.get(12..14)?;
            match kind {
                [8, 0] | [0x86, 0xdd] => 14,
                [0x81, 0] => 18,
                _ => return None,
            }
        }
        12 | 14 | 101 | 228 | 229 => 0,
        113 => 16,
        276 => 20,
        0 | 108 => 4,
        _ => return None,
    };
    matches!(frame.data.get(at)? >> 4, 4 | 6).then_some(at)
}

/// The addresses in a frame, and its ports.
fn ends(frame: &Frame) -> Option<[(&[u8], &[u8]); 2]> {
    let packet = frame.data.get(ip_at(frame)?..)?;
    let (addresses, length, ports) = match packet[0] >> 4 {
        4 => (12, 4, usize::from(packet[0] & 15) * 4),
        _ => (8, 16, 40),
    };
    let ports = packet.get(ports..ports + 4)?;
    let addresses = packet.get(addresses..addresses + 2 * length)?;
    let (source, destination) = addresses.split_at(length);
    Some([(source, &ports[..2]), (destination, &ports[2..])])
}

/// True if a frame goes from the higher end of its connection to the lower.
fn side(frame: &Frame) -> Option<bool> {
    let [source, destination] = ends(frame)?;
    Some(source > destination)
}

fn translate(frame: &mut Frame) {
    let Some(at) = ip_at(frame) else { return };
    let places = if frame.data[at] >> 4 == 4 { [12, 16] } else { [8, 24] };
    for place in places {
        if let Some(byte) = frame.data.get_mut(at + place) {
            *byte ^= 0x40;
        }
    }
}

/// The frames of a pcap, or of a pcapng in little-endian order. `None` for other files.
pub(crate) fn frames(capture: &[u8]) -> Option<Vec<Frame>> {
    let word =
        |at: usize| -> Option<u32> { Some(u32::from_le_bytes(*capture.get(at..)?.first_chunk()?)) };
    match word(0)? {
        0xa1b2_c3d4 => pcap(capture, u32::from_le_bytes, 1_000),
        0xa1b2_3c4d => pcap(capture, u32::from_le_bytes, 1),
        0xd4c3_b2a1 => pcap(capture, u32::from_be_bytes, 1_000),
        0x0a0d_0d0a if word(8) == Some(0x1a2b_3c4d) => pcapng(capture),
        _ => None,
    }
}

fn pcap(capture: &[u8], word: fn([u8; 4]) -> u32, unit_ns: u64) -> Option<Vec<Frame>> {
    let word = |at: usize| Some(word(*capture.get(at..)?.first_chunk()?));
    let link = word(20)? & 0xffff;
    let mut frames = Vec::new();
    let mut at = 24;
    while let Some(captured) = word(at + 8) {
        let Some(data) = capture.get(at + 16..).and_then(|rest| rest.get(..captured as usize))
        else {
            break;
        };
        let time_ns = u64::from(word(at)?) * 1_000_000_000 + u64::from(word(at + 4)?) * unit_ns;
        frames.push(Frame::new(link, time_ns, data, word(at + 12)?, &frames));
        at += 16 + captured as usize;
    }
    Some(frames)
}

fn pcapng(capture: &[u8]) -> Option<Vec<Frame>> {
    let word =
        |at: usize| -> Option<u32> { Some(u32::from_le_bytes(*capture.get(at..)?.first_chunk()?)) };
    let (mut links, mut frames, mut at) = (Vec::new(), Vec::new(), 0);
    while let (Some(kind), Some(length)) = (word(at), word(at + 4)) {
        match kind {
            0x0a0d_0d0a => links.clear(),
            1 => links.push(word(at + 8)? & 0xffff),
            6 => {
                let [interface, high, low, captured, length] =
                    [8, 12, 16, 20, 24].map(|field| word(at + field).unwrap_or(0));
                let Some(data) =
                    capture.get(at + 28..).and_then(|rest| rest.get(..captured as usize))
                else {
                    break;
                };
                let link = *links.get(interface as usize)?;
                // The resolution is taken for microseconds: only the order counts.
                let time_ns = (u64::from(high) << 32 | u64::from(low)).saturating_mul(1_000);
                frames.push(Frame::new(link, time_ns, data, length, &frames));
            }
            _ => {}
        }
        at += (length as usize).max(12);
    }
    Some(frames)
}

/// A pcapng with these frames, an interface for each kind of link.
pub(crate) fn written(frames: &[Frame]) -> Vec<u8> {
    use crate::pcapng::{block, interface};
    let header = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let mut bytes = block(0x0a0d_0d0a, &header);
    let mut links: Vec<u32> = Vec::new();
    for frame in frames {
        if !links.contains(&frame.link) {
            links.push(frame.link);
            // Nanoseconds.
            bytes.extend(interface(frame.link, &[9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]));
        }
        let place = links.iter().position(|link| *link == frame.link).unwrap();
        let [high, low] = [frame.time_ns >> 32, frame.time_ns & 0xffff_ffff]
            .map(|half| u32::try_from(half).unwrap());
        let captured = u32::try_from(frame.data.len()).unwrap();
        let words = [u32::try_from(place).unwrap(), high, low, captured, frame.length];
        bytes.extend(block(6, &[&words.map(u32::to_le_bytes).concat()[..], &frame.data].concat()));
    }
    bytes
}
