use super::*;
use crate::control::config;

/// Two remotes. Paths are made at 0x66000000; those of the first expire after 6 h and 337.5 s, that of the
/// second after 6 h.
const TEXT: &str = r#"
    [gateway]
    isd_as = "1-ff00:0:110"
    data_addr = "10.10.0.2:30056"
    prefixes = ["192.168.10.0/24"]
    [[remote]]
    isd_as = "1-ff00:0:111"
    gateway = "10.11.0.2:30056"
    prefixes = ["192.168.11.0/24"]
    [[remote.path]]
    name = "short"
    raw = "00002000 0100123466000000 000000000001010203040506 003f000200000708090a0b0c"
    next_hop = "10.10.0.1:30042"
    mtu = 1472
    [[remote.path]]
    name = "long"
    raw = "00002000 0100123466000000 003f00000002010203040506 003f000300000708090a0b0c"
    next_hop = "10.10.0.1:30042"
    mtu = 1472
    [[remote]]
    isd_as = "1-ff00:0:112"
    gateway = "10.12.0.2:30056"
    prefixes = ["192.168.12.0/24"]
    [[remote.path]]
    raw = "00002000 0100123466000000 003f00000003010203040506 003f000200000708090a0b0c"
    next_hop = "10.10.0.1:30042"
    mtu = 1472
"#;

const MADE: u64 = 0x6600_0000;
/// Half a second less than the first hop field of path "short" says.
const SHORT: u64 = MADE + 337;
const LONG: u64 = MADE + 21_600;

fn read(text: &str) -> Config {
    config::check(text, "test.toml", &|_| {
        Err(std::io::ErrorKind::NotFound.into())
    })
    .expect("a valid configuration")
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// For each session, which of its paths have expired; for each site, whether it is exported.
fn shape(plan: &Plan) -> (Vec<Vec<bool>>, Vec<bool>) {
    let sessions = plan.sessions.iter();
    let expired = sessions.map(|s| s.paths.iter().map(|path| path.expired).collect());
    let exported = plan.sites.iter().map(|site| site.exported);
    (expired.collect(), exported.collect())
}

#[test]
fn an_expired_path_is_not_used_and_the_last_one_takes_the_routes_with_it() {
    let configured = Configured::new(&read(TEXT), at(MADE));
    assert_eq!(configured.plan(at(MADE)), Plan::from_config(&read(TEXT)));
    let (expired, exported) = shape(&configured.plan(at(SHORT)));
    assert_eq!(expired, [vec![true, false], vec![false]]);
    assert_eq!(exported, [true, true]);
    let (expired, exported) = shape(&configured.plan(at(LONG)));
    assert_eq!(expired, [vec![true, true], vec![true]]);
    assert_eq!(exported, [false, false]);
}

#[test]
fn every_path_is_announced_an_hour_before_and_when_it_expires_but_once() {
    let mut configured = Configured::new(&read(TEXT), at(MADE));
    let told = |notices: Vec<Notice>| -> Vec<(String, Validity, bool)> {
        let notice = |n: Notice| (n.path, n.validity, n.was_last);
        notices.into_iter().map(notice).collect()
    };
    let mut now = at(MADE);
    let mut story = vec![(0, told(configured.poll(now)))];
    while let Some(next) = configured.deadline(now) {
        assert!(next > now);
        now = next;
        let seconds = now.duration_since(at(MADE)).expect("later").as_secs();
        story.push((seconds, told(configured.poll(now))));
        assert_eq!(configured.poll(now), []);
    }
    let (soon, expired) = (Validity::ExpiresSoon, Validity::Expired);
    let notice = |path: &str, validity, was_last| (path.to_owned(), validity, was_last);
    assert_eq!(
        story,
        [
            (0, vec![notice("short", soon, false)]),
            (337, vec![notice("short", expired, false)]),
            (
                18_000,
                vec![notice("long", soon, false), notice("0", soon, false)]
            ),
            (
                21_600,
                vec![notice("long", expired, true), notice("0", expired, true)]
            ),
        ]
    );
    let notice = Notice {
        remote: "remote 1-ff00:0:111,10.11.0.2".into(),
        path: "0".into(),
        validity: Validity::Expired,
        expires_at: LONG,
        was_last: true,
    };
    assert_eq!(
        notice.to_string(),
        "the path expired at 2024-03-24T16:27:12Z and no other path is left: routes to the \
         remote withdrawn; replace it and run \"sig reload\""
    );
}

#[test]
fn a_reload_keeps_the_sessions_of_remotes_that_stay() {
    let mut configured = Configured::new(&read(TEXT), at(MADE));
    let first = configured.plan(at(MADE));
    assert_eq!(
        configured.reload(&read(TEXT), at(MADE)),
        Vec::<String>::new()
    );
    assert_eq!(configured.plan(at(MADE)), first);

    // The first remote goes, the second gets refreshed hop fields, a third comes.
    let (head, rest) = TEXT.split_once("[[remote]]").expect("a remote");
    let (gone, second) = rest.split_once("[[remote]]").expect("two remotes");
    let second = second.replace("0100123466000000", "0100432166005000");
    let third = gone.replace("0:111", "0:113").replace("168.11", "168.13");
    let text = format!("{head}[[remote]]{second}[[remote]]{third}");
    assert_eq!(
        configured.reload(&read(&text), at(MADE)),
        [
            "remote 1-ff00:0:112,10.12.0.2: paths changed",
            "remote 1-ff00:0:113,10.11.0.2: added",
            "remote 1-ff00:0:111,10.11.0.2: removed",
        ]
    );
    let second = configured.plan(at(MADE));
    let key = |plan: &Plan, place: usize| plan.sessions[place].key;
    assert_eq!(key(&second, 0), key(&first, 1));
    assert!(![key(&first, 0), key(&first, 1)].contains(&key(&second, 1)));
    let path = |plan: &Plan, place: usize| plan.sessions[place].paths[0].path.clone();
    assert_eq!(path(&second, 0).fingerprint, path(&first, 1).fingerprint);
    assert_ne!(path(&second, 0).raw, path(&first, 1).raw);

    // A name that was in use never comes back.
    configured.reload(&read(TEXT), at(MADE));
    let third = configured.plan(at(MADE));
    assert_eq!(key(&third, 1), key(&first, 1));
    assert!(![key(&first, 0), key(&second, 1)].contains(&key(&third, 0)));
}

#[test]
fn a_reload_names_what_changes_in_a_remote() {
    let mut configured = Configured::new(&read(TEXT), at(MADE));
    let text = TEXT
        .replace("[\"192.168.10.0/24\"]", "[\"192.168.9.0/24\"]")
        .replace("10.12.0.2:30056", "10.12.0.2:40000")
        .replace(
            "[\"192.168.12.0/24\"]",
            "[\"192.168.14.0/24\"]\nsession = 7",
        );
    assert_eq!(
        configured.reload(&read(&text), at(MADE)),
        [
            "remote 1-ff00:0:112,10.12.0.2: data port changed",
            "remote 1-ff00:0:112,10.12.0.2: session number changed",
            "remote 1-ff00:0:112,10.12.0.2: prefixes changed",
            "served prefixes changed",
        ]
    );
    let served = configured.plan(at(MADE)).served.expect("served prefixes");
    assert_eq!(served, ["192.168.9.0/24".parse().expect("a prefix")]);
}

/// The same remote, with the description of a network in place of bytes. Paths live for 6 h.
const NETWORK: &str = r#"
    [[as]]
    isd_as = "1-ff00:0:110"
    core = true
    master_key = "AAECAwQFBgcICQoLDA0ODw=="
    [[as]]
    isd_as = "1-ff00:0:111"
    master_key = "EBESExQVFhcYGRobHB0eHw=="
    [[link]]
    a = "1-ff00:0:110#1"
    b = "1-ff00:0:111#41"
    type = "child"
    [[link]]
    a = "1-ff00:0:110#2"
    b = "1-ff00:0:111#42"
    type = "child"
    mtu = 1300
"#;

const MADE_HERE: &str = r#"
    [gateway]
    isd_as = "1-ff00:0:110"
    data_addr = "10.10.0.2:30056"
    prefixes = ["192.168.10.0/24"]
    [[remote]]
    isd_as = "1-ff00:0:111"
    gateway = "10.11.0.2:30056"
    prefixes = ["192.168.11.0/24"]
    [[remote.path]]
    network = "network.toml"
    via = ["1-ff00:0:111#42"]
    next_hop = "10.10.0.1:30042"
"#;

fn read_with(text: &str, network: &str) -> Result<Config, String> {
    let read_file = |name: &std::path::Path| {
        assert_eq!(name, "network.toml");
        Ok(network.as_bytes().to_vec())
    };
    config::check(text, "test.toml", &read_file).map_err(|errors| errors.to_string())
}

#[test]
fn a_path_made_from_a_network_is_made_anew_at_half_its_life_and_keeps_its_name() {
    let config = read_with(MADE_HERE, NETWORK).expect("a valid configuration");
    assert_eq!(config.remotes[0].paths[0].mtu, 1300);
    let mut configured = Configured::new(&config, at(MADE));
    let path = |configured: &Configured, now| {
        let plan = configured.plan(now);
        assert!(plan.sites[0].exported);
        let path = plan.sessions[0].paths[0].clone();
        assert!(!path.expired);
        path.path
    };
    let first = path(&configured, at(MADE));
    assert_eq!(first.expiry, Some(at(LONG)));
    assert_eq!(configured.poll(at(MADE)), []);
    // Many lives long, nothing but renewals.
    let mut now = at(MADE);
    for round in 1..20 {
        now = configured.deadline(now).expect("a renewal");
        assert_eq!(now, at(MADE + round * 10_800));
        let notices = configured.poll(now);
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert_eq!(notices[0].validity, Validity::Valid);
        let renewed = path(&configured, now);
        assert_eq!(renewed.expiry, Some(now + Duration::from_secs(21_600)));
        assert_ne!(renewed.raw, first.raw);
        assert_eq!(renewed.fingerprint, first.fingerprint);
    }
    // A reload of the same file leaves it alone, one with another key does not.
    let before = path(&configured, now);
    let later = now + Duration::from_secs(60);
    assert_eq!(configured.reload(&config, later), Vec::<String>::new());
    assert_eq!(path(&configured, later).raw, before.raw);
    let other = NETWORK.replace("EBES", "EBET");
    let other = read_with(MADE_HERE, &other).expect("a valid configuration");
    assert_eq!(
        configured.reload(&other, later),
        ["remote 1-ff00:0:111,10.11.0.2: paths changed"]
    );
    assert_eq!(
        path(&configured, later).expiry,
        Some(later + Duration::from_secs(21_600))
    );
    // A clock that was set back: routers would not take paths from the future.
    assert_eq!(configured.poll(at(MADE)).len(), 1);
    assert_eq!(path(&configured, at(MADE)).expiry, Some(at(LONG)));
}

#[test]
fn what_is_wrong_with_a_network_is_told_at_the_key_that_names_it() {
    for (text, network, message) in [
        (
            MADE_HERE.to_owned(),
            format!("timestamp = 5\n{NETWORK}"),
            "test.toml:11: remote[0].path[0].network: \"network.toml\" has a timestamp, so its paths \
             could not be renewed; remove it",
        ),
        (
            MADE_HERE.replace("111#42", "111#43"),
            NETWORK.to_owned(),
            "test.toml:11: remote[0].path[0].network: there is no path from 1-ff00:0:110 to 1-ff00:0:111 through \
             1-ff00:0:111#43; \"sig path make network.toml --from 1-ff00:0:110 --to 1-ff00:0:111\" lists \
             the existing ones",
        ),
        (
            MADE_HERE.to_owned(),
            NETWORK.replace("core = true", "cor = true"),
            "test.toml:11: remote[0].path[0].network: network.toml:4: as[0].cor: unknown key; did you mean \
             \"core\"?",
        ),
        (
            MADE_HERE.replace("network =", "raw = \"00\"\nnetwork ="),
            NETWORK.to_owned(),
            "test.toml:11: remote[0].path[0].raw: remote[0].path[0].network is also set; remove one of the two",
        ),
        (
            MADE_HERE.replace("#42", ""),
            NETWORK.to_owned(),
            "test.toml:12: remote[0].path[0].via[0]: \"1-ff00:0:111\" is not an interface; write AS and number, for \
             example \"1-ff00:0:110#1\"",
        ),
    ] {
        assert_eq!(
            read_with(&text, &network).expect_err("it is wrong"),
            message
        );
    }
}

#[test]
fn the_file_that_is_rendered_makes_the_same_paths() {
    let config = read_with(MADE_HERE, NETWORK).expect("a valid configuration");
    let again = read_with(&config.to_toml(), NETWORK).expect("a valid configuration");
    assert_eq!(config.remotes, again.remotes);
}
