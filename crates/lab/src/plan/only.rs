//! A part of a plan, chosen on a command line: `--only algorithm=LC,load=250`.

use super::check::near;
use super::{Plan, Selection, System};

const PARTS: [&str; 4] = ["farm", "system", "algorithm", "load"];

impl Plan {
    /// The plan with those of its combinations that have one of the names given for each part, and the claims that these
    /// can answer.
    ///
    /// A filter is `PART=NAME` or, where it is clear whose name it is, `NAME`; several stand in a list with commas or
    /// in several texts.
    ///
    /// Errors: a name that the plan does not have, or nothing is left; in words.
    pub fn only(&self, filters: &[String]) -> Result<Plan, String> {
        let mut wanted: [Vec<String>; 4] = Default::default();
        for filter in filters.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|text| !text.is_empty()) {
            let (part, name) = self.meant(filter)?;
            wanted[part].push(name);
        }
        let mut plan = self.clone();
        if wanted.iter().all(Vec::is_empty) {
            return Ok(plan);
        }
        if plan.cells.is_empty() {
            plan.cells.push(Selection::default());
        }
        let [farms, systems, algorithms, loads] = wanted;
        for selection in &mut plan.cells {
            narrow(&mut selection.farms, &farms, String::as_str);
            narrow(&mut selection.systems, &self.systems_called(&systems), System::name);
            narrow(&mut selection.algorithms, &algorithms, String::as_str);
            narrow(&mut selection.loads, &loads, String::as_str);
        }
        plan.cells.retain(|selection| !selection.is_empty());
        if plan.cells.is_empty() {
            return Err(format!("the plan {} has no combination of {}", self.name, filters.join(", ")));
        }
        plan.keep_what_can_be_asked();
        Ok(plan)
    }

    /// The part of a filter, and the name.
    fn meant(&self, filter: &str) -> Result<(usize, String), String> {
        let parts = self.part_names();
        if let Some((part, name)) = filter.split_once('=') {
            let Some(part) = PARTS.iter().position(|known| *known == part || part.strip_suffix('s') == Some(known))
            else {
                return Err(format!("--only {filter}: there is no part \"{part}\", there are {}", PARTS.join(", ")));
            };
            return match parts[part].iter().any(|known| known == name) {
                true => Ok((part, name.to_owned())),
                false => Err(format!(
                    "--only {filter}: there is no \"{name}\" among the {}s of the plan; {}",
                    PARTS[part],
                    near(name, &parts[part])
                )),
            };
        }
        let having: Vec<usize> =
            (0..PARTS.len()).filter(|part| parts[*part].iter().any(|name| name == filter)).collect();
        match having.as_slice() {
            [part] => Ok((*part, filter.to_owned())),
            [] => Err(format!("--only {filter}: the plan has nothing of that name; {}", near(filter, &parts.concat()))),
            several => {
                let ways: Vec<String> = several.iter().map(|part| format!("{}={filter}", PARTS[*part])).collect();
                Err(format!("--only {filter}: that is the name of several parts: say {}", ways.join(" or ")))
            }
        }
    }

    fn part_names(&self) -> [Vec<String>; 4] {
        [
            self.farms.iter().map(|farm| farm.name.clone()).collect(),
            self.systems.iter().map(|system| system.name().to_owned()).collect(),
            self.algorithms.iter().map(|algorithm| algorithm.name.clone()).collect(),
            self.loads.iter().map(|load| load.name.clone()).collect(),
        ]
    }

    fn systems_called(&self, names: &[String]) -> Vec<System> {
        self.systems.iter().filter(|system| names.iter().any(|name| name == system.name())).cloned().collect()
    }
}

/// Of a list, or of all if there is none, what is wanted too.
fn narrow<T: Clone>(list: &mut Option<Vec<T>>, wanted: &[T], name: fn(&T) -> &str) {
    if wanted.is_empty() {
        return;
    }
    match list {
        Some(listed) => listed.retain(|part| wanted.iter().any(|other| name(other) == name(part))),
        None => *list = Some(wanted.to_vec()),
    }
}
