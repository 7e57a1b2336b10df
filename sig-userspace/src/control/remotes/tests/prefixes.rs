//! Which prefixes are learned, and which AS they lead to.

use super::*;

/// What the gateway of the remote AS announces, seen after 1.5 s.
fn announced(routing: &str, prefixes: &[&str]) -> Net {
    let mut this = Net::new(DYNAMIC, routing);
    let prefixes = prefixes.iter().map(|prefix| net(prefix)).collect();
    this.prefixes.insert(gateway("10.11.0.2").control, prefixes);
    this.run(1500);
    this
}

fn reasons(net: &mut Net) -> BTreeMap<String, u64> {
    let refused = net.remotes.snapshot(net.now).refused.into_iter();
    refused
        .map(|refused| (refused.reason, refused.count))
        .collect()
}

#[test]
fn announced_prefixes_are_reached_as_far_as_they_are_believed() {
    let mut this = announced(
        ACCEPT,
        &[
            "192.168.11.0/24",
            "fd00:11::/64",
            // Not accepted, served here, never routed.
            "172.16.0.0/16",
            "192.168.10.128/25",
            "169.254.0.0/16",
        ],
    );
    assert_eq!(
        this.exported(),
        ["192.168.11.0/24", "fd00:11::/64"].map(net)
    );
    assert_eq!(this.plan().served, Some(vec![net("192.168.10.0/24")]));
    let told = this.remotes.snapshot(this.now);
    let seen = &told.ases[0].gateways[0];
    assert_eq!((seen.prefixes_accepted, seen.prefixes_rejected), (2, 3));
    let expected = [("address_scope", 1), ("overlaps_served", 1)];
    assert_eq!(
        reasons(&mut this),
        expected
            .map(|(word, count)| (word.to_owned(), count))
            .into()
    );
    // Withdrawn with the next answer.
    let control = gateway("10.11.0.2").control;
    this.prefixes.insert(control, vec![net("fd00:11::/64")]);
    this.run(6000);
    assert_eq!(this.exported(), [net("fd00:11::/64")]);
}

#[test]
fn an_aggregate_around_what_is_served_here_and_default_routes_are_learned() {
    let everything = "accept 1-ff00:0:111 1-ff00:0:110 0.0.0.0/0,::/0";
    // One at a time: the prefixes of a gateway are joined where they touch.
    for prefix in ["0.0.0.0/0", "192.168.0.0/16", "::/0"] {
        let mut this = announced(everything, &[prefix]);
        assert_eq!(this.exported(), [net(prefix)]);
        assert_eq!(reasons(&mut this), BTreeMap::new());
        // The host decides whether narrower routes protect what must be reached past the tunnel.
        let outside = this.plan().outside();
        for address in ["10.10.0.1", "10.10.0.2", "10.77.0.1"] {
            assert!(
                outside.contains(&address.parse().expect("an address")),
                "{address}"
            );
        }
    }
    let mut this = Net::new(DYNAMIC, everything);
    this.remotes.own.default_route = DefaultRoute::Refuse;
    let control = gateway("10.11.0.2").control;
    let announced = ["0.0.0.0/0", "192.168.0.0/16", "192.168.11.0/24"].map(net);
    this.prefixes.insert(control, announced.to_vec());
    this.run(1500);
    assert_eq!(this.exported(), announced[1..], "what is not refused stays");
    assert_eq!(
        reasons(&mut this).keys().collect::<Vec<_>>(),
        ["default_route"]
    );
}

#[test]
fn a_prefix_is_judged_before_it_is_joined_and_alone() {
    let mut this = announced(
        ACCEPT,
        &[
            "192.168.10.0/24",
            "192.168.11.0/24",
            "192.168.12.0/24",
            "192.168.13.0/24",
        ],
    );
    assert_eq!(
        this.exported(),
        ["192.168.11.0/24", "192.168.12.0/23"].map(net),
        "what is served here is refused, and the others are joined all the same"
    );
    let expected = BTreeMap::from([("overlaps_served".to_owned(), 1)]);
    assert_eq!(reasons(&mut this), expected);
    let told = this.remotes.snapshot(this.now);
    let seen = &told.ases[0].gateways[0];
    assert_eq!((seen.prefixes_accepted, seen.prefixes_rejected), (3, 1));
}

/// A hub announces the aggregate of its spokes and takes from each what is its own.
#[test]
fn a_hub_learns_the_parts_of_its_aggregate_that_accept_rules_name() {
    let hub = "accept 1-ff00:0:111 1-ff00:0:110 192.168.11.0/24,192.168.12.0/25,192.168.12.128/25\n\
               accept 1-ff00:0:111 1-ff00:0:110 192.168.0.0/16\n\
               advertise 1-ff00:0:110 0-0 192.168.0.0/16\n";
    let mut this = announced(
        hub,
        &["192.168.11.0/24", "192.168.12.0/24", "192.168.14.0/24"],
    );
    assert_eq!(
        this.exported(),
        ["192.168.11.0/24", "192.168.12.0/24"].map(net),
        "the last one is accepted by a rule for all that is served here"
    );
    assert_eq!(
        reasons(&mut this).keys().collect::<Vec<_>>(),
        ["overlaps_served"]
    );
}

#[test]
fn prefixes_of_the_operator_for_another_as_win_against_parts_but_not_against_aggregates() {
    let traffic = r#"{"ASes": {
        "1-ff00:0:111": {"Nets": []}, "1-ff00:0:112": {"Nets": ["192.168.12.0/24"]}
    }}"#;
    let mut this = Net::new(traffic, ACCEPT);
    this.paths.insert(isd_as(OTHER), vec![path(OTHER, 3, 31)]);
    this.gateways
        .insert(isd_as(OTHER), vec![gateway("10.12.0.2")]);
    let control = gateway("10.11.0.2").control;
    this.prefixes.insert(
        control,
        vec![net("192.168.12.0/25"), net("192.168.16.0/20")],
    );
    this.run(1500);
    assert_eq!(
        this.exported(),
        ["192.168.12.0/24", "192.168.16.0/20"].map(net)
    );
    this.prefixes.insert(control, vec![net("192.168.0.0/16")]);
    this.run(6000);
    assert_eq!(
        this.exported(),
        ["192.168.0.0/16", "192.168.12.0/24"].map(net)
    );
}

#[test]
fn a_wide_prefix_of_the_operator_is_used_although_it_holds_the_underlay() {
    let wide = r#"{"ASes": {"1-ff00:0:111": {"Nets": ["10.0.0.0/8"]}}}"#;
    let mut net = Net::new(wide, "");
    net.run(1000);
    assert_eq!(net.exported(), [self::net("10.0.0.0/8")]);
}

/// Two ASes with a gateway each, and what they announce; seen after they have settled.
fn two_ases(near: &[&str], far: &[&str]) -> Net {
    let traffic = r#"{"ASes": {"1-ff00:0:111": {"Nets": []}, "1-ff00:0:112": {"Nets": []}}}"#;
    let mut this = Net::new(
        traffic,
        "accept 0-0 1-ff00:0:110 192.168.0.0/16\nadvertise 1-ff00:0:110 0-0 192.168.10.0/24",
    );
    this.paths.insert(isd_as(OTHER), vec![path(OTHER, 3, 31)]);
    this.gateways
        .insert(isd_as(OTHER), vec![gateway("10.12.0.2")]);
    for (host, prefixes) in [("10.11.0.2", near), ("10.12.0.2", far)] {
        let prefixes = prefixes.iter().map(|prefix| net(prefix)).collect();
        this.prefixes.insert(gateway(host).control, prefixes);
    }
    this.run(8000);
    this
}

fn leads_to(net: &Net, prefix: &str) -> Option<IsdAs> {
    let prefix = self::net(prefix);
    let mut sites = net.plan().sites.iter().filter(|site| site.exported);
    Some(sites.find(|site| site.prefixes.contains(&prefix))?.isd_as)
}

#[test]
fn a_prefix_of_two_ases_leads_to_the_higher_one_and_to_the_other_while_that_is_dead() {
    let shared = "192.168.50.0/24";
    let mut this = two_ases(&[shared, "192.168.55.0/24"], &[shared, "192.168.57.0/24"]);
    let owner = |net: &Net| leads_to(net, shared);
    assert_eq!(owner(&this), Some(isd_as(OTHER)), "as the reference");
    let contested = this.remotes.snapshot(this.now).contested;
    let [contested] = &contested[..] else {
        panic!("one prefix is contested: {contested:?}")
    };
    assert_eq!(
        (
            contested.prefix,
            contested.isd_as.as_str(),
            &contested.others[..]
        ),
        (net(shared), OTHER, &[REMOTE.to_owned()][..])
    );
    let dead: IpAddr = "10.12.0.2".parse().expect("an address");
    this.dead.insert(dead);
    this.run(2600);
    assert_eq!(owner(&this), Some(isd_as(REMOTE)), "within two seconds");
    assert_eq!(leads_to(&this, "192.168.57.0/24"), None);
    this.dead.remove(&dead);
    this.run(3000);
    assert_eq!(
        leads_to(&this, "192.168.57.0/24"),
        Some(isd_as(OTHER)),
        "it is back"
    );
    assert_eq!(
        owner(&this),
        Some(isd_as(REMOTE)),
        "but must prove itself first"
    );
    this.run(3500);
    assert_eq!(owner(&this), Some(isd_as(OTHER)));
    // Withdrawn, and announced again.
    this.prefixes
        .insert(gateway("10.12.0.2").control, Vec::new());
    this.run(6000);
    assert_eq!(owner(&this), Some(isd_as(REMOTE)));
    let back = vec![net(shared)];
    this.prefixes.insert(gateway("10.12.0.2").control, back);
    this.run(5500);
    assert_eq!(
        owner(&this),
        Some(isd_as(REMOTE)),
        "it has been up all the time, but without the prefix"
    );
    this.run(5500);
    assert_eq!(owner(&this), Some(isd_as(OTHER)));
    // The routes stay through all of this.
    let is_there = |plan: &Plan| {
        let mut sites = plan.sites.iter();
        sites.any(|site| site.exported && site.prefixes.contains(&net(shared)))
    };
    let mut plans = this.plans.iter().map(|(_, plan)| plan);
    assert!(plans.any(is_there));
    assert!(plans.all(is_there));
}

#[test]
fn a_prefix_that_is_withdrawn_and_announced_again_and_again_does_not_move_each_time() {
    let shared = "192.168.50.0/24";
    let mut this = two_ases(&[shared], &[shared]);
    let control = gateway("10.12.0.2").control;
    let mut owners = Vec::new();
    for round in 0..6 {
        let announced = if round % 2 == 0 {
            vec![]
        } else {
            vec![net(shared)]
        };
        this.prefixes.insert(control, announced);
        this.run(5000);
        owners.push(leads_to(&this, shared));
    }
    owners.dedup();
    assert_eq!(owners, [Some(isd_as(REMOTE))]);
}

#[test]
fn prefixes_of_the_operator_for_two_ases_fail_over_too() {
    let traffic = r#"{"ASes": {
        "1-ff00:0:111": {"Nets": ["192.168.50.0/24"]}, "1-ff00:0:112": {"Nets": ["192.168.50.0/24"]}
    }}"#;
    let mut this = two_ases(&[], &[]);
    this.load(traffic, "");
    this.run(1000);
    assert_eq!(leads_to(&this, "192.168.50.0/24"), Some(isd_as(OTHER)));
    this.dead.insert("10.12.0.2".parse().expect("an address"));
    this.run(2600);
    assert_eq!(leads_to(&this, "192.168.50.0/24"), Some(isd_as(REMOTE)));
    this.dead.insert("10.11.0.2".parse().expect("an address"));
    this.run(2600);
    assert_eq!(leads_to(&this, "192.168.50.0/24"), None);
}

#[test]
fn a_wider_prefix_of_another_as_is_left_when_the_narrower_one_is_dead() {
    let mut this = two_ases(&["192.168.0.0/16"], &["192.168.50.0/24"]);
    assert_eq!(leads_to(&this, "192.168.50.0/24"), Some(isd_as(OTHER)));
    this.dead.insert("10.12.0.2".parse().expect("an address"));
    this.run(2600);
    assert_eq!(this.exported(), [net("192.168.0.0/16")]);
}

#[test]
fn beyond_the_limit_known_prefixes_stay_and_newcomers_are_refused_and_counted() {
    let mut this = Net::new(DYNAMIC, ACCEPT);
    let control = gateway("10.11.0.2").control;
    // No two of them can be joined.
    let some = |numbers: std::ops::Range<u8>| -> Vec<IpNet> {
        let text = |n| format!("192.168.{}.0/24", 100 + 2 * n);
        numbers.map(|n| net(&text(n))).collect()
    };
    this.prefixes.insert(control, some(5..12));
    this.run(1500);
    assert_eq!(this.exported(), some(5..12));
    this.prefixes.insert(control, some(0..12));
    this.run(60_000);
    let kept: Vec<IpNet> = some(0..1).into_iter().chain(some(5..12)).collect();
    assert_eq!(this.exported(), kept, "room for eight, asked a dozen times");
    let expected = BTreeMap::from([("prefixes_over_limit".to_owned(), 4)]);
    assert_eq!(reasons(&mut this), expected);
}

#[test]
fn a_refused_prefix_counts_once_until_it_is_withdrawn_and_announced_again() {
    let mut this = announced(ACCEPT, &["192.168.10.128/25", "192.168.11.0/24"]);
    let count = |net: &mut Net| reasons(net)["overlaps_served"];
    assert_eq!(count(&mut this), 1);
    // Vetted anew with every reload and every change.
    this.load(DYNAMIC, ACCEPT);
    let control = gateway("10.11.0.2").control;
    this.prefixes
        .insert(control, vec![net("192.168.10.128/25")]);
    this.run(6000);
    assert_eq!(count(&mut this), 1);
    this.prefixes.insert(control, Vec::new());
    this.run(6000);
    this.prefixes
        .insert(control, vec![net("192.168.10.128/25")]);
    this.run(6000);
    assert_eq!(count(&mut this), 2);
}
