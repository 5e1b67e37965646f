"""Learning to predict edges: `outercore train --task link`."""
