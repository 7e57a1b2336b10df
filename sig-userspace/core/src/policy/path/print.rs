//! Path policies as JSON, in the form of the policy file.

use serde_json::{Map, Value, json};

use super::{PathPolicy, RemoteRule};

impl PathPolicy {
    /// The policy in the form of the policy file; `null` for that which admits every path.
    #[must_use]
    pub fn to_json(&self) -> Value {
        if *self == Self::default() {
            return Value::Null;
        }
        let mut object = Map::new();
        let mut put = |key: &str, value| {
            object.insert(key.into(), value);
        };
        if let Some(local) = &self.local {
            put(
                "local_isd_ases",
                local.iter().map(ToString::to_string).collect(),
            );
        }
        if let Some(remote) = &self.remote {
            let rule = |rule: &RemoteRule| json!({"isd_as": rule.isd_as.to_string(), "reject": rule.reject});
            put("remote_isd_ases", remote.iter().map(rule).collect());
        }
        if let Some(acl) = &self.acl {
            put(
                "acl",
                acl.entries().iter().map(ToString::to_string).collect(),
            );
        }
        if let Some(sequence) = &self.sequence {
            put("sequence", sequence.to_string().into());
        }
        if !self.options.is_empty() {
            let options = self.options.iter();
            let option = options
                .map(|option| json!({"weight": option.weight, "policy": option.policy.to_json()}));
            put("options", option.collect());
        }
        Value::Object(object)
    }
}
