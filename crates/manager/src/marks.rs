
use std::cell::Cell; use std::collections::BTreeMap; use std::sync::Mutex; use std::time::Instant;
pub static ALL: Mutex<BTreeMap<(u32,&'static str), Vec<u64>>> = Mutex::new(BTreeMap::new());
thread_local!{ static LAST: Cell<Option<Instant>> = Cell::new(None); }
pub fn start(){ LAST.set(Some(Instant::now())); }
pub fn mark(n: u32, what: &'static str){ let now=Instant::now(); if let Some(l)=LAST.get(){ ALL.lock().unwrap().entry((n,what)).or_default().push((now-l).as_nanos() as u64);} LAST.set(Some(Instant::now())); }
pub fn dump(){ let mut all=ALL.lock().unwrap(); for (k,v) in all.iter_mut(){ v.sort(); eprintln!("{:3} {:30} n={} median {:.1} us", k.0,k.1,v.len(), v[v.len()/2] as f64/1e3);} all.clear(); }
