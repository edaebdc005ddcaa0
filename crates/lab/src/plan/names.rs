//! The parts of a plan by their names.

use super::{Algorithm, Farm, Load, Plan, Server, Setting};
use crate::units::count;

impl Plan {
    /// The farm of this name.
    pub fn farm(&self, name: &str) -> Option<&Farm> {
        self.farms.iter().find(|farm| farm.name == name)
    }

    /// The algorithm of this name.
    pub fn algorithm(&self, name: &str) -> Option<&Algorithm> {
        self.algorithms.iter().find(|algorithm| algorithm.name == name)
    }

    /// The load of this name.
    pub fn load(&self, name: &str) -> Option<&Load> {
        self.loads.iter().find(|load| load.name == name)
    }
}

impl Farm {
    /// Names of the servers in their order, counted servers one by one.
    pub fn names(&self) -> Vec<String> {
        self.servers.iter().flat_map(Server::names).collect()
    }

    /// The servers in their order, counted servers one by one, each with its name.
    pub fn each(&self) -> impl Iterator<Item = (String, &Server)> {
        self.servers.iter().flat_map(|server| server.names().into_iter().map(move |name| (name, server)))
    }

    /// Which of the servers an algorithm has, as places in [`Farm::names`].
    ///
    /// Errors: it names servers or has weights that do not fit this farm; in words.
    pub fn chosen(&self, algorithm: &Algorithm) -> Result<Vec<usize>, String> {
        let names = self.names();
        let place = |wanted: &String| {
            let found = names.iter().position(|name| name == wanted);
            found.ok_or_else(|| format!("the farm \"{}\" has no server \"{wanted}\"", self.name))
        };
        let chosen = match algorithm.servers.as_slice() {
            [] => (0..names.len()).collect(),
            wanted => wanted.iter().map(place).collect::<Result<Vec<usize>, String>>()?,
        };
        if let Some(reached) = &algorithm.reaches
            && !chosen.contains(&place(reached)?)
        {
            return Err(format!("\"{reached}\" is not among the servers of \"{}\"", algorithm.name));
        }
        let weights = algorithm.weights.len();
        if weights != 0 && weights != chosen.len() {
            let (weights, servers) = (count(weights as u64, "weight"), count(chosen.len() as u64, "server"));
            return Err(format!("{weights} for {servers} of the farm \"{}\"", self.name));
        }
        Ok(chosen)
    }
}

impl Server {
    /// Its name; of several equal ones, each one's.
    pub fn names(&self) -> Vec<String> {
        match self.count {
            1 => vec![self.name.clone()],
            count => (1..=count).map(|number| format!("{}-{number}", self.name)).collect(),
        }
    }

    /// Its options as words of a command line of `balanza target`.
    pub fn arguments(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (option, setting) in &self.target {
            let value = match setting {
                Setting::Flag(false) => continue,
                Setting::Flag(true) => None,
                Setting::Whole(number) => Some(number.to_string()),
                Setting::Number(number) => Some(number.to_string()),
                Setting::Text(text) => Some(text.clone()),
            };
            words.push(match value {
                Some(value) => format!("--{option}={value}"),
                None => format!("--{option}"),
            });
        }
        words
    }
}
