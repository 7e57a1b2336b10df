//! A configuration made of typed values.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use sig_common::addr::IsdAs;

use super::{
    Config, Control, Dataplane, Errors, Gateway, Log, Observe, Problem, Remote, Tunnel, check,
};

/// Makes a [`Config`] of typed values. What is not set has the default of the configuration file.
///
/// ```
/// use sig::config::{Config, Dataplane, Path, Pin, Remote};
///
/// let path = [
///     0, 0, 0x20, 0, 1, 0, 0x12, 0x34, 0x66, 0, 0, 0, // one segment of two hops
///     0, 63, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 0, 63, 0, 2, 0, 0, 7, 8, 9, 10, 11, 12,
/// ];
/// let remote = Remote::new("1-ff00:0:111".parse()?, "10.11.0.2:30056".parse()?)
///     .prefixes(["10.2.0.0/24".parse()?])
///     .path(Path::new(path, "10.10.0.1:30042".parse()?, 1472));
/// let config = Config::builder("1-ff00:0:110".parse()?, "10.10.0.2:30056".parse()?)
///     .prefixes(["10.1.0.0/24".parse()?])
///     .remote(remote.clone())
///     .dataplane(Dataplane { pin: Pin::Never, ..Dataplane::default() })
///     .build()?;
/// assert_eq!(config.remotes[0].paths[0].source_port, 30056);
///
/// let twice = Config::builder("1-ff00:0:110".parse()?, "10.10.0.2:30056".parse()?)
///     .remote(remote.clone())
///     .remote(remote);
/// let errors = twice.build().unwrap_err();
/// assert_eq!(
///     errors.problems()[0].to_string(),
///     "remote[1].gateway: 1-ff00:0:111,10.11.0.2 is already configured as remote[0]; merge their prefixes and paths there",
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    config: Config,
}

impl Config {
    /// Begins a configuration of a gateway in this AS, with this address and UDP/SCION port of its data plane; port 0
    /// stands for 30056.
    #[must_use]
    pub fn builder(isd_as: IsdAs, data_addr: SocketAddr) -> Builder {
        Builder {
            config: Config {
                log: Log::default(),
                gateway: Gateway::with_defaults(isd_as, data_addr, PathBuf::new()),
                tunnel: Tunnel::default(),
                dataplane: Dataplane::default(),
                remotes: Vec::new(),
                control: None,
                observe: Observe::default(),
                warnings: Vec::new(),
            },
        }
    }
}

impl Builder {
    /// Names the gateway in logs and file names.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.config.gateway.id = id.into();
        self
    }

    /// Sets the Unix socket that `sig status` asks.
    #[must_use]
    pub fn status_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.gateway.status_socket = path.into();
        self
    }

    /// Adds IP prefixes that are served here.
    #[must_use]
    pub fn prefixes(mut self, prefixes: impl IntoIterator<Item = IpNet>) -> Self {
        self.config.gateway.prefixes.extend(prefixes);
        self
    }

    /// Adds a remote gateway. Without any, remotes are found: see [`Builder::control`].
    #[must_use]
    pub fn remote(mut self, remote: Remote) -> Self {
        self.config.remotes.push(remote);
        self
    }

    /// Sets how remotes are found where none is added.
    #[must_use]
    pub fn control(mut self, control: Control) -> Self {
        self.config.control = Some(control);
        self
    }

    /// Sets what the tunnel device is like.
    #[must_use]
    pub fn tunnel(mut self, tunnel: Tunnel) -> Self {
        self.config.tunnel = tunnel;
        self
    }

    /// Sets interfaces, threads and memory of the data plane.
    #[must_use]
    pub fn dataplane(mut self, dataplane: Dataplane) -> Self {
        self.config.dataplane = dataplane;
        self
    }

    /// Sets what is logged.
    #[must_use]
    pub fn log(mut self, log: Log) -> Self {
        self.config.log = log;
        self
    }

    /// Sets where operators and their programs look.
    #[must_use]
    pub fn observe(mut self, observe: Observe) -> Self {
        self.config.observe = observe;
        self
    }

    /// Returns the configuration.
    ///
    /// The values are written as the file that [`Config::to_toml`] returns, and that is checked: there is one set of
    /// rules, and messages call values by their keys there.
    ///
    /// # Errors
    ///
    /// All problems of the values, with what to set instead; they have no file and no line. Files are not read, so a path
    /// that is made from the description of a network is refused.
    pub fn build(self) -> Result<Config, Errors> {
        let control = self.config.control.as_ref();
        let traffic = control.map(|control| &control.traffic_policy_file);
        let routing = control.and_then(|control| control.ip_routing_policy_file.as_ref());
        let paths = [
            ("status_socket", Some(&self.config.gateway.status_socket)),
            ("traffic_policy_file", traffic),
            ("ip_routing_policy_file", routing),
        ];
        let unwritable: Vec<Problem> = paths
            .into_iter()
            .filter_map(|(key, path)| Some((key, path.filter(|path| path.to_str().is_none())?)))
            .map(|(key, path)| Problem {
                file: String::new(),
                line: 0,
                key: format!("gateway.{key}"),
                message: format!("{path:?} is not UTF-8; use another path"),
            })
            .collect();
        if !unwritable.is_empty() {
            return Err(Errors::new(unwritable));
        }
        check(&self.config.to_toml(), "", &|_| {
            Err(io::Error::other("a builder reads no files"))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Limits, Path, Pin};
    use super::*;

    const RAW: [u8; 36] = [
        0, 0, 0x20, 0, 1, 0, 0x12, 0x34, 0x66, 0, 0, 0, 0, 63, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 0, 63,
        0, 2, 0, 0, 7, 8, 9, 10, 11, 12,
    ];

    fn builder() -> Builder {
        Config::builder(
            "1-ff00:0:110".parse().unwrap(),
            "10.10.0.2:0".parse().unwrap(),
        )
        .prefixes(["10.1.0.0/24".parse().unwrap()])
    }

    fn remote() -> Remote {
        let path = Path::new(RAW, "10.10.0.1:30042".parse().unwrap(), 1472);
        Remote::new(
            "1-ff00:0:111".parse().unwrap(),
            "10.11.0.2:0".parse().unwrap(),
        )
        .prefixes(["10.2.0.0/24".parse().unwrap()])
        .path(path)
    }

    fn errors(builder: Builder) -> String {
        builder.build().unwrap_err().to_string()
    }

    #[test]
    fn defaults_are_those_of_the_file() {
        let built = builder().remote(remote()).build().unwrap();
        let text = r#"
            [gateway]
            isd_as = "1-ff00:0:110"
            data_addr = "10.10.0.2"
            prefixes = ["10.1.0.0/24"]
            [[remote]]
            isd_as = "1-ff00:0:111"
            gateway = "10.11.0.2"
            prefixes = ["10.2.0.0/24"]
            [[remote.path]]
            raw = "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c"
            next_hop = "10.10.0.1:30042"
            mtu = 1472
        "#;
        let none = |_: &std::path::Path| Err(io::ErrorKind::NotFound.into());
        assert_eq!(built, check(text, "gateway.toml", &none).unwrap());
        assert_eq!(built.remotes[0].paths[0].name, "0");
    }

    #[test]
    fn defaults_of_finding_remotes_are_those_of_the_file() {
        let default = builder().build().unwrap();
        let set = builder().control(Control::default()).build().unwrap();
        assert_eq!(set, default);
    }

    #[test]
    fn what_is_set_is_kept() {
        let dataplane = Dataplane {
            workers: 2,
            pin: Pin::Cpus(vec![4, 5]),
            reorder_wait: Duration::from_nanos(1_000_001),
            limits: Limits {
                streams_total: 10,
                streams_per_remote: 10,
                ..Limits::default()
            },
            ..Dataplane::default()
        };
        let mut path = remote().paths.remove(0);
        (path.name, path.source_port) = ("via \"ISP\" A".into(), 40_000);
        let built = builder()
            .id("site\\a")
            .dataplane(dataplane.clone())
            .remote(Remote {
                session: 7,
                paths: vec![path.clone()],
                ..remote()
            })
            .build()
            .unwrap();
        assert_eq!(built.gateway.id, "site\\a");
        assert_eq!(built.dataplane, dataplane);
        assert_eq!(built.remotes[0].session, 7);
        assert_eq!(built.remotes[0].paths, [path]);
    }

    #[test]
    fn wrong_values_are_refused_by_the_rules_of_the_file() {
        let host_bits = remote().prefixes(["10.3.0.1/24".parse().unwrap()]);
        assert_eq!(
            errors(builder().remote(host_bits)),
            "remote[0].prefixes[1]: \"10.3.0.1/24\" has host bits set; write \"10.3.0.0/24\""
        );
        let nowhere = Remote {
            paths: Vec::new(),
            ..remote()
        };
        assert!(
            errors(builder().remote(nowhere)).starts_with("remote[0]: no path; write at least one")
        );
        let own = remote().path(Path::new(RAW, "10.10.0.2:30056".parse().unwrap(), 1472));
        assert!(errors(builder().remote(own)).contains("this gateway's own address"));
        let limits = Dataplane {
            workers: 0,
            reorder_wait: Duration::MAX,
            ..Dataplane::default()
        };
        let problems = builder().dataplane(limits).build().unwrap_err();
        let keys: Vec<&str> = problems.problems().iter().map(|p| &*p.key).collect();
        assert_eq!(keys, ["dataplane.workers", "dataplane.reorder_wait"]);
        assert!(problems.problems().iter().all(|p| p.line == 0));
    }

    #[test]
    fn a_path_that_no_file_could_name_is_refused() {
        use std::os::unix::ffi::OsStringExt as _;
        let path = std::ffi::OsString::from_vec(b"/run/\xff.sock".to_vec());
        let error = errors(builder().status_socket(path));
        assert!(
            error.contains("status_socket") && error.contains("UTF-8"),
            "{error}"
        );
    }
}
