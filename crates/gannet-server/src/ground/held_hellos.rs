//! Connections whose handshakes wait for a certificate that was ordered just now.

use crate::bounds::limits::{HELD_HELLOS_MAX, HELD_HELLOS_OF_CLIENT_MAX};
use crate::clients::ClientKey;
use crate::ground::alive::Alive;
use crate::ground::token::ConnId;

/// The connections of a worker whose handshakes wait, in order of arrival.
#[derive(Default)]
pub(crate) struct HeldHellos(Vec<HeldHello>);

struct HeldHello {
    connection: ConnId,
    /// Whom it counts for.
    client: Option<ClientKey>,
}

impl HeldHellos {
    /// Adds a connection, unless there are too many, or too many of its client. Those that have ended do
    /// not count.
    pub(crate) fn add(
        &mut self,
        connection: ConnId,
        client: Option<ClientKey>,
        alive: &Alive,
    ) -> bool {
        if !self.has_room(client) {
            self.0.retain(|held| alive.has(held.connection));
        }
        let has_room = self.has_room(client);
        if has_room {
            self.0.push(HeldHello { connection, client });
        }
        has_room
    }

    fn has_room(&self, client: Option<ClientKey>) -> bool {
        let of_client = || self.0.iter().filter(|held| held.client == client).count();
        self.0.len() < HELD_HELLOS_MAX
            && (client.is_none() || of_client() < HELD_HELLOS_OF_CLIENT_MAX)
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, connection: ConnId) {
        self.0.retain(|held| held.connection != connection);
    }

    /// Takes them all: certificates were replaced.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = ConnId> + use<> {
        let all = std::mem::take(&mut self.0);
        all.into_iter().map(|held| held.connection)
    }
}
