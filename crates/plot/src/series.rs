//! What a chart shows: named points, and how they are drawn.

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Line,
    /// The value holds until the next point.
    Step,
    /// No line.
    Points,
    /// Filled down to the bottom of the frame.
    Area,
}

/// Named points of a [`crate::Chart`].
#[derive(Clone, Debug)]
pub struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) shape: Shape,
    pub(crate) band: Vec<(f64, f64)>,
    pub(crate) whiskers: Vec<(f64, f64)>,
    pub(crate) markers: bool,
    pub(crate) reference: bool,
}

impl Series {
    fn new(name: &str, points: impl IntoIterator<Item = (f64, f64)>, shape: Shape) -> Self {
        Self {
            name: name.to_string(),
            points: points.into_iter().collect(),
            shape,
            band: Vec::new(),
            whiskers: Vec::new(),
            markers: shape == Shape::Points,
            reference: false,
        }
    }

    /// Points (x, y) joined by straight lines, in the order given. A value that has no place on its axis leaves a gap.
    pub fn line(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::new(name, points, Shape::Line)
    }

    /// A value that holds from each point to the next: distributions, queue lengths, counters.
    pub fn step(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::new(name, points, Shape::Step)
    }

    /// Points alone.
    pub fn points(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::new(name, points, Shape::Points)
    }

    /// A histogram from its bins (from, to, height), neighbours beside each other.
    pub fn histogram(name: &str, bins: impl IntoIterator<Item = (f64, f64, f64)>) -> Self {
        let corners = bins.into_iter().flat_map(|(from, to, height)| [(from, height), (to, height)]);
        Self::new(name, corners, Shape::Area)
    }

    /// A line that others are compared with, such as a theory's: grey, dotted, behind the others.
    #[must_use]
    pub fn reference(mut self) -> Self {
        self.reference = true;
        self
    }

    /// A pale band from low to high around the line, one for each point: an interval of confidence.
    #[must_use]
    pub fn band(mut self, band: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.band = band.into_iter().collect();
        self
    }

    /// An interval from low to high at each point.
    #[must_use]
    pub fn whiskers(mut self, whiskers: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.whiskers = whiskers.into_iter().collect();
        self
    }

    /// Marks each point; its numbers appear under the pointer.
    #[must_use]
    pub fn markers(mut self) -> Self {
        self.markers = true;
        self
    }

    pub(crate) fn xs(&self) -> impl Iterator<Item = f64> {
        self.points.iter().map(|point| point.0)
    }

    pub(crate) fn ys(&self) -> impl Iterator<Item = f64> {
        let intervals = self.band.iter().chain(&self.whiskers).flat_map(|&(low, high)| [low, high]);
        self.points.iter().map(|point| point.1).chain(intervals)
    }
}
