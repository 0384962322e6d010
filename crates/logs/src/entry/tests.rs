use rejoin_testkit::random::Random;

use super::*;

const MS: u64 = 1_795_621_767_000;

fn parser() -> Parser {
    Parser::new([9; 16])
}

fn parse(line: &str) -> Result<Entry, Why> {
    parser().parse(line.as_bytes())
}

fn known(line: &str) -> Entry {
    parse(line).unwrap_or_else(|why| panic!("{why}: {line}"))
}

fn address(text: &str) -> u64 {
    parser().client(text.as_bytes()).address
}

const COMBINED: &str =
    r#"192.0.2.7 - - [25/Nov/2026:15:49:27 +0000] "GET / HTTP/1.1" 200 612 "-" "curl/8.9""#;

#[test]
fn combined_lines_of_nginx_and_apache() {
    let plain = known(COMBINED);
    assert_eq!((plain.time_ms, plain.address), (MS, address("192.0.2.7")));
    assert_eq!(
        (plain.tls, plain.reused, plain.connection, plain.is_first),
        (Tls::Unknown, None, None, None)
    );
    assert!(plain.agent.is_some() && plain.has_zone);
    let nginx =
        known(&format!("{COMBINED} tls=TLSv1.3 reused=r conn=17 nth=2 msec=1795621767.250"));
    assert_eq!((nginx.tls, nginx.reused, nginx.is_first), (Tls::V13, Some(true), Some(false)));
    assert_eq!((nginx.time_ms, nginx.agent), (MS + 250, plain.agent));
    let apache = known(&format!("{COMBINED} tls=TLSv1.2 reused=Initial port=51234 kept=0"));
    assert_eq!(
        (apache.tls, apache.reused, apache.is_first),
        (Tls::UpTo12, Some(false), Some(true))
    );
    assert!(apache.connection.is_some() && apache.connection != nginx.connection);
    assert_eq!(known(&format!("{COMBINED} tls=- reused=- conn=17")).tls, Tls::Plain);
    assert_eq!(known(&COMBINED.replace("\"-\" \"curl/8.9\"", "")).agent, None);
    for before in [
        "www.example.com:443 ",
        "Nov 25 15:49:27 host nginx: ",
        "<190>Nov 25 15:49:27 host nginx: ",
    ] {
        assert_eq!(known(&format!("{before}{COMBINED}")).address, plain.address, "{before}");
    }
}

#[test]
fn values_may_be_in_quotes() {
    let bare = known(&format!("{COMBINED} tls=TLSv1.3 reused=r conn=17 nth=1"));
    let quoted = format!("{COMBINED} tls=\"TLSv1.3\", reused=\"r\"; conn=\"17\" nth=\"1\",");
    assert_eq!(known(&quoted), bare);
    assert_eq!(known(&format!("{COMBINED} tls=\"-\" reused=\"-\"")).tls, Tls::Plain);
    // What a client wrote in quotes is one value.
    let forged = known(&format!("{COMBINED} referer=\"a msec=978307200 tls=TLSv1.2\" tls=TLSv1.3"));
    assert_eq!((forged.time_ms, forged.tls), (MS, Tls::V13));
    for (odd, tls) in [("tls=TLSv1.4", Tls::Unknown), ("tls=TLSv1.3 reused=yes", Tls::V13)] {
        let read = known(&format!("{COMBINED} {odd}"));
        assert_eq!((read.has_odd_value, read.tls), (true, tls), "{odd}");
    }
    assert!(!bare.has_odd_value && !known(COMBINED).has_odd_value);
    assert_eq!(known(&format!("{COMBINED} note=\"open tls=TLSv1.3")).tls, Tls::V13);
}

#[test]
fn what_precedes_an_object_is_passed_over() {
    const JSON: &str = r#"{"time": "2026-11-25T15:49:27Z", "client": "192.0.2.7"}"#;
    let alone = known(JSON);
    for before in
        ["2026-11-25T15:49:28.000000000Z stdout F ", "web_1  | ", "Nov 25 15:49:27 host nginx: "]
    {
        assert_eq!(known(&format!("{before}{JSON}")), alone, "{before}");
    }
    let text = format!("{COMBINED} {{x}}");
    assert_eq!(known(&text).time_ms, MS, "a word in braces is no object");
}

#[test]
fn a_captured_header_tells_nothing() {
    let line = |headers: &str| {
        format!(
            "192.0.2.7:33318 [25/Nov/2026:15:49:27.000] front~ back/web 0/0/0/1/1 200 6 - - ---- 1/1/0/0/0 0/0 {headers} \
             \"GET / HTTP/1.1\""
        )
    };
    let plain = known(&line("{curl/8.9}"));
    assert_eq!(known(&line("{Mozilla/5.0 (X11 msec=978307200 tls=TLSv1.2 }")), plain);
}

#[test]
fn an_address_in_front_of_the_client_is_not_the_client() {
    let client = address("192.0.2.7");
    for before in [
        "10.0.0.5 ",
        "Nov 25 15:49:27 10.0.0.5 nginx: ",
        "<190>Nov 25 15:49:27 10.0.0.5 nginx: ",
        "2026-11-25T15:49:27Z 2001:db8::5 nginx[17]: 10.0.0.6 ",
    ] {
        for identity in ["- -", "- ada", "- ada byron", "10.0.0.8 10.0.0.9"] {
            let line = format!("{before}{}", COMBINED.replace("- - [", &format!("{identity} [")));
            assert_eq!(known(&line).address, client, "{line}");
        }
    }
}

/// Apache's `vhost_combined` with `HostnameLookups On`, and what syslog puts in front.
#[test]
fn a_word_between_the_client_and_its_identity_is_not_the_client() {
    for between in
        ["www.example.com", "- www.example.com", "(-)", "\"-\"", "- [192.0.2.7]", "0.1, - HIT"]
    {
        for user in ["- -", "- ada"] {
            let line =
                COMBINED.replace("192.0.2.7 - - [", &format!("192.0.2.7 {between} {user} ["));
            assert_eq!(known(&line).address, address("192.0.2.7"), "{between} {user}");
        }
    }
}

#[test]
fn a_client_without_an_address_is_the_name_before_its_identity() {
    let at = |before: &str, name: &str, user: &str| {
        let client = format!("{before}{name} {user} [");
        known(&COMBINED.replace("192.0.2.7 - - [", &client)).address
    };
    for before in [
        "",
        "www.example.com:443 ",
        "203.0.113.10:443 ",
        "[2001:db8::80]:443 ",
        "Nov 25 15:49:27 host nginx: ",
        "<190>Nov 25 15:49:27 10.0.0.5 nginx: ",
        "<190>1 2026-11-25T15:49:27Z host nginx - - - ",
    ] {
        for user in ["- -", "- ada", "- ada byron", "- ada king byron"] {
            for name in ["c1.isp.example", "c2.isp.example"] {
                assert_eq!(at(before, name, user), address(name), "{before}{name} {user}");
            }
        }
    }
    for user in ["id ada", "id -"] {
        assert_eq!(at("www.example.com:443 ", "c1.isp.example", user), address("c1.isp.example"));
    }
    assert_eq!(at("host nginx - - - ", "192.0.2.7", "id ada byron"), address("192.0.2.7"));
    let alone = COMBINED.replace("192.0.2.7 - - [", "c1.isp.example [");
    assert_eq!(known(&alone).address, address("c1.isp.example"));
}

/// nginx's `$http_x_forwarded_for - $remote_user`.
#[test]
fn of_a_list_of_addresses_the_first_is_the_client() {
    let line = |list: &str| COMBINED.replace("192.0.2.7 - - [", &format!("{list} ["));
    for (list, client) in [
        ("192.0.2.7, 10.0.0.1 - -", "192.0.2.7"),
        ("192.0.2.7, 2001:db8::1, 10.0.0.1 - ada byron", "192.0.2.7"),
        ("Nov 25 15:49:27 10.0.0.5 nginx: 192.0.2.7, 10.0.0.1 - -", "192.0.2.7"),
        ("10.0.0.5 192.0.2.7, unknown, 10.0.0.1 - -", "192.0.2.7"),
        ("unknown, 192.0.2.7 - -", "192.0.2.7"),
        ("192.0.2.7, unknown - -", "192.0.2.7"),
        ("10.0.0.5, text 192.0.2.7 - -", "192.0.2.7"),
    ] {
        assert_eq!(known(&line(list)).address, address(client), "{list}");
    }
}

/// nginx's `$remote_addr:$remote_port`, Azure's `X-Forwarded-For`, Go's `RemoteAddr`; lists without a blank; and all in JSON.
#[test]
fn a_port_or_a_list_does_not_make_another_client() {
    let line = |client: &str| COMBINED.replace("192.0.2.7 - - [", &format!("{client} - - ["));
    let json = |client: &str| format!("{{\"time\":1795621767,\"client\":\"{client}\"}}");
    let with_port = [
        ("192.0.2.7:41846", "192.0.2.7"),
        ("[2001:db8::80]:49637", "2001:db8::80"),
        ("[2001:db8::80]:443", "2001:db8::80"),
        ("[::ffff:192.0.2.7]:41846", "192.0.2.7"),
        // Five digits are no group of an address, and eight groups are all that it has.
        ("2001:db8::80:49637", "2001:db8::80"),
        ("2001:db8:0:0:0:0:0:80:443", "2001:db8::80"),
    ];
    let without = [
        ("[2001:db8::80]", "2001:db8::80"),
        // The last group of an address looks like a port.
        ("2001:db8::80:443", "2001:db8::80:443"),
        ("192.0.2.7,10.0.0.1", "192.0.2.7"),
        ("192.0.2.7:50123,10.0.0.1:50124", "192.0.2.7"),
        ("192.0.2.7:50123, 10.0.0.1", "192.0.2.7"),
        ("192.0.2.7,2001:db8::1, 10.0.0.1", "192.0.2.7"),
        ("unknown,192.0.2.7", "192.0.2.7"),
        ("unknown, [2001:db8::80]:49637, 10.0.0.1", "2001:db8::80"),
    ];
    for (text, client) in with_port.into_iter().chain(without) {
        let has_port = with_port.contains(&(text, client));
        for line in [line(text), line(text).replace("- - [", "- ada byron ["), json(text)] {
            let read = known(&line);
            assert_eq!(read.address, address(client), "{line}");
            assert_eq!((read.connection.is_some(), read.connection_is_port), (has_port, has_port));
        }
    }
    for name in
        ["192.0.2.7:65536", "192.0.2.7:", "192.0.2.7:x", "[192.0.2.7]:80", "[::1]80", "[::1"]
    {
        let names = [known(&line(name)).address, known(&json(name)).address];
        assert_eq!(names, [parser().hash(Kind::Name, name.as_bytes()); 2], "{name}");
    }
    let told = json("192.0.2.7:41846").replace('}', ",\"port\":7}");
    assert_eq!(known(&told).connection, Some(parser().hash(Kind::Port, b"7")), "a told one counts");
    let other = known(&line("192.0.2.7:41847"));
    assert_ne!(other.connection, known(&line("192.0.2.7:41846")).connection);
    let behind = COMBINED.replace("192.0.2.7 - - [", "192.0.2.7:41846 www.example.com - - [");
    assert_eq!(known(&behind).address, address("192.0.2.7"));
}

#[test]
fn quotes_within_an_agent_do_not_end_it() {
    let line = COMBINED.replace("curl/8.9", r#"a \"b\" tls=- [c] \\"#) + " tls=TLSv1.3";
    assert_eq!(known(&line).tls, Tls::V13);
    let forged =
        COMBINED.replace("GET / HTTP/1.1", r"GET /\x22 conn=9 [01/Jan/2026:00:00:00 +0000]");
    assert_eq!((known(&forged).time_ms, known(&forged).connection), (MS, None));
}

#[test]
fn an_address_is_the_same_however_it_is_written() {
    let at = |text: &str| known(&COMBINED.replace("192.0.2.7", text)).address;
    assert_eq!(at("::ffff:192.0.2.7"), at("192.0.2.7"));
    assert_eq!(at("2001:DB8:0::1"), at("2001:db8::1"));
    let names = ["192.0.2.7", "192.0.2.8", "a-text", "unix:", "phone.example"].map(at);
    assert!((1..names.len()).all(|at| !names[..at].contains(&names[at])), "{names:?}");
    assert_ne!(
        Parser::new([8; 16]).client(b"192.0.2.7").address,
        address("192.0.2.7"),
        "another key"
    );
}

#[test]
fn haproxys_own_formats() {
    let http = r#"Nov 25 15:49:27 host haproxy[14389]: 10.0.1.2:33317 [25/Nov/2026:15:49:27.123] https~ web/s1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {} {} "GET / HTTP/1.1""#;
    let found = known(http);
    assert_eq!((found.time_ms, found.address), (MS + 123, address("10.0.1.2")));
    assert!(found.connection.is_some() && !found.has_zone && found.tls == Tls::Unknown);
    assert_eq!(known(&http.replace("https~", "http")).tls, Tls::Plain);
    let https =
        format!("{http} 0/0000000000000000/0/0/1 example.com/TLSv1.3/TLS_AES_256_GCM_SHA384");
    assert_eq!((known(&https).tls, known(&https).reused), (Tls::V13, Some(true)));
    let v6 = known(&http.replace("10.0.1.2:33317", "2001:db8::7:33317"));
    assert_eq!(v6.address, address("2001:db8::7"));
    let tcp = "10.0.1.2:33317 [25/Nov/2026:15:49:27.123] https~ web/s1 0/0/5 212 -- 1/1/1/1/0 0/0";
    assert_eq!(known(tcp).connection, found.connection);
    let failed = "10.0.1.2:33317 [25/Nov/2026:15:49:27.123] https/1: SSL handshake failure";
    assert_eq!(parse(failed), Err(Why::NoRequest));
}

#[test]
fn objects_in_json() {
    let line = r#"{"time_iso8601":"2026-11-25T15:49:27+00:00","msec":"1795621767.500","remote_addr":"192.0.2.7",
        "http_user_agent":"curl/8.9","ssl_protocol":"TLSv1.2","ssl_session_reused":".","connection":17,"connection_requests":1}"#
        .replace('\n', "");
    let found = known(&line);
    assert_eq!((found.time_ms, found.address), (MS + 500, address("192.0.2.7")));
    assert_eq!((found.tls, found.reused, found.is_first), (Tls::UpTo12, Some(false), Some(true)));
    assert_eq!(found.agent, known(COMBINED).agent);
    assert_eq!(found.connection, known(&format!("{COMBINED} conn=17")).connection);
    assert_eq!(known(&format!("Nov 25 15:49:27 host nginx: {line}")), found);
    assert_eq!(known(r#"{"ts":1795621767,"client":"x","tls":""}"#).tls, Tls::Plain);
}

#[test]
fn a_reason_is_given_for_what_is_not_understood() {
    let wrong = [
        ("hello", Why::NoTime),
        ("192.0.2.7 - - [yesterday] \"GET / HTTP/1.1\" 200 612", Why::NoTime),
        ("[25/Nov/2026:15:49:27 +0000] \"GET / HTTP/1.1\" 200 612", Why::NoClient),
        ("192.0.2.7 - - [25/Nov/2026:15:49:27 +0000] no request", Why::NoRequest),
        ("192.0.2.7 - - [25/Nov/2026:15:49:27 +0000] \"GET / HTTP/1.1", Why::NoRequest),
        ("192.0.2.7 - - [25/Nov/2026:15:49:27 +0000]", Why::NoRequest),
        ("{\"time\":1795621767,", Why::NoJson),
        ("{\"time\":1795621767}", Why::NoClient),
        ("{\"client\":\"x\",\"time\":[1]}", Why::NoTime),
        ("{}", Why::NoTime),
        ("\u{0}\u{0}", Why::NoTime),
    ];
    for (line, why) in wrong {
        assert_eq!(parse(line), Err(why), "{line}");
    }
}

/// Lines made of pieces of lines, of hostile pieces and of any bytes, in any order: each is an entry in the years that are
/// allowed, or has a reason.
#[test]
fn hostile_lines_are_parsed_or_refused() {
    let pieces: [&[u8]; 22] = [
        b"192.0.2.7",
        b" - - ",
        b"[25/Nov/2026:15:49:27 +0000]",
        b"[25/Nov/2026:15:49:27.123]",
        b" \"",
        b"\"",
        b"\\",
        b" 200 ",
        b"{",
        b"}",
        b"\"time\":",
        b":",
        b"[",
        b"]",
        b"tls=",
        b"conn=",
        b"=",
        b"~ a/b ",
        b"0/0000000000000000/0/0/1 x/TLSv1.3/y",
        b"99999999999999999999",
        b"\xff\xfe",
        b"::1:",
    ];
    let (mut random, parser) = (Random::new(29), parser());
    let mut found = [0_u32; 2];
    for _ in 0..100_000 {
        // Half of them begin well.
        let begins: [&[u8]; 2] = [b"", b"192.0.2.7 - - [25/Nov/2026:15:49:27 +0000] \"\" 200 "];
        let mut line = random.one_of(&begins).to_vec();
        for _ in 0..random.below(12) {
            match random.below(8) {
                0 => line.push(random.next() as u8),
                _ => line.extend_from_slice(random.one_of(&pieces)),
            }
        }
        let entry = parser.parse(&line);
        found[usize::from(entry.is_ok())] += 1;
        if let Ok(entry) = entry {
            assert!((946_684_800_000..4_102_444_800_000).contains(&entry.time_ms), "{entry:?}");
        }
    }
    // The pieces make enough of both.
    assert!(found.iter().all(|count| *count > 100), "{found:?}");
}

/// Every cut and every changed byte of known lines.
#[test]
fn damaged_lines_are_parsed_or_refused() {
    let json = r#"{"time":"2026-11-25T15:49:27Z","client":"192.0.2.7","conn":"17","nth":"1","tls":"TLSv1.3"}"#;
    let haproxy = r#"h: 10.0.1.2:1 [25/Nov/2026:15:49:27.123] f~ b/s 0/0 200 1 - - ---- {} "GET /" 0/0000000000000000/0/0/1 n/TLSv1.3/c"#;
    for line in [COMBINED, json, haproxy] {
        for at in 0..line.len() {
            let _ = parser().parse(&line.as_bytes()[..at]);
            for byte in [0, b' ', b'"', b'[', b']', b'{', b'\\', b'9', 0xff] {
                let mut changed = line.as_bytes().to_vec();
                changed[at] = byte;
                let _ = parser().parse(&changed);
            }
        }
    }
}
