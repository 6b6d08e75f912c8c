//! `serviceaccounts/token`: bearer tokens of service accounts. Tokens are random strings that the server keeps in
//! memory and that expire.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;

use crate::object;
use crate::registry::Resource;
use crate::request::{Call, Target};
use crate::response::Answer;
use crate::server::ApiServer;
use crate::status::{Cause, Status};
use crate::user::User;

const SECONDS_DEFAULT: i64 = 3600;
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 1 << 32;

impl ApiServer {
    pub(super) fn request_token(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
    ) -> Result<Answer, Status> {
        let mut request = call.decode_body()?;
        let live = self.find(target, resource)?;
        let seconds = object::int(&request, &["spec", "expirationSeconds"]).unwrap_or(SECONDS_DEFAULT);
        let field = "spec.expirationSeconds";
        let refuse = |why: &str| {
            let cause = Cause::invalid(field, &seconds.into(), why);
            Status::invalid("authentication.k8s.io", "TokenRequest", "", vec![cause])
        };
        if seconds < SECONDS_MIN {
            return Err(refuse("may not specify a duration less than 10 minutes"));
        }
        if seconds > SECONDS_MAX {
            return Err(refuse("may not specify a duration larger than 2^32 seconds"));
        }
        let expires = call.now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(call.now);
        let token = format!("{}{}", self.rng.uid().replace('-', ""), self.rng.uid().replace('-', ""));
        if !call.dry_run()? {
            let now = call.now;
            self.tokens.retain(|_, (_, end)| *end > now);
            self.tokens
                .insert(token.clone(), (account_user(live.namespace(), live.name(), &live.uid), expires));
        }
        if !request.is_object() {
            request = json!({});
        }
        object::set(&mut request, &["kind"], "TokenRequest");
        object::set(&mut request, &["apiVersion"], "authentication.k8s.io/v1");
        object::set(&mut request, &["metadata", "name"], live.name());
        object::set(&mut request, &["metadata", "namespace"], live.namespace());
        object::set(&mut request, &["metadata", "creationTimestamp"], object::stamp(call.now));
        object::set(&mut request, &["spec", "expirationSeconds"], seconds);
        if object::items(&request, &["spec", "audiences"]).is_empty() {
            object::set(
                &mut request,
                &["spec", "audiences"],
                json!(["https://kubernetes.default.svc.cluster.local"]),
            );
        }
        object::set(
            &mut request,
            &["status"],
            json!({ "token": token, "expirationTimestamp": object::stamp(expires) }),
        );
        Ok(Answer::Value { code: 201, value: request })
    }

    /// The user of a token, if this server issued the token and it has not expired.
    pub(crate) fn token_user(&self, now: jiff::Timestamp, token: &str) -> Option<User> {
        self.tokens.get(token).filter(|(_, end)| *end > now).map(|(user, _)| user.clone())
    }
}

/// The user of a service account.
fn account_user(namespace: &str, name: &str, uid: &str) -> User {
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        uid: uid.into(),
        groups: vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".into(),
        ],
    }
}
