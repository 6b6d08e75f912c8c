//! Services: allocation and release of cluster IPs and node ports.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::object;
use crate::server::ApiServer;
use crate::status::{Cause, Status};

/// The service CIDR 10.96.0.0/16. The default of kubeadm, 10.96.0.0/12, is larger.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
const ADDRESSES: u32 = 1 << 16;
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// Allocated cluster IPs and node ports.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    addresses: BTreeSet<Ipv4Addr>,
    node_ports: BTreeSet<i64>,
}

pub(super) fn on_create(server: &mut ApiServer, service: &mut Value) -> Result<(), Status> {
    allocate(server, None, service)
}

pub(super) fn on_update(server: &mut ApiServer, old: &Value, new: &mut Value) -> Result<(), Status> {
    // Fields that the client omits keep their values, so that a manifest without them can be applied again.
    let external = |service: &Value| object::text(service, &["spec", "type"]) == "ExternalName";
    if !external(new) && !external(old) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if object::get(new, &["spec", field]).is_none() {
                object::carry(old, new, &["spec", field]);
            }
        }
    }
    allocate(server, Some(old), new)
}

pub(super) fn on_deleted(server: &mut ApiServer, service: &Value) {
    if let Ok(address) = object::text(service, &["spec", "clusterIP"]).parse() {
        server.services.addresses.remove(&address);
    }
    for port in object::items(service, &["spec", "ports"]) {
        if let Some(number) = object::int(port, &["nodePort"]) {
            server.services.node_ports.remove(&number);
        }
    }
}

fn invalid(service: &Value, cause: Cause) -> Status {
    Status::invalid("", "Service", object::name(service), vec![cause])
}

fn allocate(server: &mut ApiServer, old: Option<&Value>, service: &mut Value) -> Result<(), Status> {
    let kind = object::text(service, &["spec", "type"]).to_owned();
    if kind == "ExternalName" {
        return Ok(());
    }
    let given = object::text(service, &["spec", "clusterIP"]).to_owned();
    let before = old.map(|old| object::text(old, &["spec", "clusterIP"]).to_owned());
    match given.as_str() {
        "None" => object::set(service, &["spec", "clusterIPs"], json!(["None"])),
        "" => {
            let address = server.next_address().to_string();
            object::set(service, &["spec", "clusterIP"], address.as_str());
            object::set(service, &["spec", "clusterIPs"], json!([address]));
        }
        given => {
            if before.as_deref() != Some(given) {
                allocate_requested_address(server, service, given)?;
            }
            object::set(service, &["spec", "clusterIPs"], json!([given]));
        }
    }
    if object::get(service, &["spec", "ipFamilies"]).is_none() {
        object::set(service, &["spec", "ipFamilies"], json!(["IPv4"]));
        object::set(service, &["spec", "ipFamilyPolicy"], "SingleStack");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        allocate_node_ports(server, old, service)?;
    }
    Ok(())
}

fn allocate_requested_address(server: &mut ApiServer, service: &Value, given: &str) -> Result<(), Status> {
    let refuse = |why: &str| Err(invalid(service, Cause::invalid("spec.clusterIPs", &json!([given]), why)));
    let Ok(address) = given.parse::<Ipv4Addr>() else {
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        return Err(invalid(service, Cause::invalid("spec.clusterIPs[0]", &given.into(), why)));
    };
    let within = u32::from(address).checked_sub(u32::from(NETWORK)).is_some_and(|offset| offset < ADDRESSES);
    if !within {
        let why = format!(
            "failed to allocate IP {given}: the provided IP is not in the valid range. The range of valid IPs is {NETWORK}/16"
        );
        return refuse(&why);
    }
    if !server.services.addresses.insert(address) {
        return refuse(&format!("failed to allocate IP {given}: provided IP is already allocated"));
    }
    Ok(())
}

fn allocate_node_ports(
    server: &mut ApiServer,
    old: Option<&Value>,
    service: &mut Value,
) -> Result<(), Status> {
    let kept: Vec<i64> = old
        .map(|old| object::items(old, &["spec", "ports"]))
        .unwrap_or_default()
        .iter()
        .filter_map(|port| object::int(port, &["nodePort"]))
        .collect();
    let mut ports = object::items(service, &["spec", "ports"]).to_vec();
    for (at, port) in ports.iter_mut().enumerate() {
        match object::int(port, &["nodePort"]) {
            Some(number) if number > 0 => {
                if kept.contains(&number) {
                    continue;
                }
                let field = format!("spec.ports[{at}].nodePort");
                if !NODE_PORTS.contains(&number) {
                    let why =
                        "provided port is not in the valid range. The range of valid ports is 30000-32767";
                    return Err(invalid(service, Cause::invalid(&field, &number.into(), why)));
                }
                if !server.services.node_ports.insert(number) {
                    let why = "provided port is already allocated";
                    return Err(invalid(service, Cause::invalid(&field, &number.into(), why)));
                }
            }
            _ => {
                let same =
                    old.and_then(|old| object::items(old, &["spec", "ports"]).get(at)).and_then(|before| {
                        let number = object::int(before, &["nodePort"])?;
                        (object::get(before, &["port"]) == object::get(port, &["port"])).then_some(number)
                    });
                let number = same.or_else(|| server.next_node_port());
                if let Some(number) = number {
                    object::set(port, &["nodePort"], number);
                }
            }
        }
    }
    object::set(service, &["spec", "ports"], ports);
    Ok(())
}

impl ApiServer {
    /// Allocates a random free address. The first 256 addresses are reserved for requests with a given `clusterIP`.
    fn next_address(&mut self) -> Ipv4Addr {
        loop {
            let offset = 256 + self.rng.below(u64::from(ADDRESSES) - 512);
            let address = Ipv4Addr::from(u32::from(NETWORK) + u32::try_from(offset).unwrap_or(256));
            if self.services.addresses.insert(address) || self.services.addresses.len() > 60_000 {
                return address;
            }
        }
    }

    fn next_node_port(&mut self) -> Option<i64> {
        let free = NODE_PORTS.filter(|port| !self.services.node_ports.contains(port)).count();
        let pick = self.rng.below(u64::try_from(free).unwrap_or(0));
        let port = NODE_PORTS
            .filter(|port| !self.services.node_ports.contains(port))
            .nth(usize::try_from(pick).unwrap_or(0))?;
        self.services.node_ports.insert(port);
        Some(port)
    }
}
