//! Services: allocation and release of cluster IPs and node ports.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::object;
use crate::server::ApiServer;
use crate::status::{Cause, Status};

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
        server.services.release_address(address);
    }
    for port in object::items(service, &["spec", "ports"]) {
        if let Some(number) = object::int(port, &["nodePort"]) {
            server.services.release_node_port(number);
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
            let address = server.services.next_address(&mut server.rng).to_string();
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
    let Ok(address) = given.parse::<Ipv4Addr>() else {
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        return Err(invalid(service, Cause::invalid("spec.clusterIPs[0]", &given.into(), why)));
    };
    server
        .services
        .allocate_address(address)
        .map_err(|why| invalid(service, Cause::invalid("spec.clusterIPs", &json!([given]), &why)))
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
                server
                    .services
                    .allocate_node_port(number)
                    .map_err(|why| invalid(service, Cause::invalid(&field, &number.into(), why)))?;
            }
            _ => {
                let same =
                    old.and_then(|old| object::items(old, &["spec", "ports"]).get(at)).and_then(|before| {
                        let number = object::int(before, &["nodePort"])?;
                        (object::get(before, &["port"]) == object::get(port, &["port"])).then_some(number)
                    });
                let number = same.or_else(|| server.services.next_node_port(&mut server.rng));
                if let Some(number) = number {
                    object::set(port, &["nodePort"], number);
                }
            }
        }
    }
    object::set(service, &["spec", "ports"], ports);
    Ok(())
}
