"""Box2D's physics of a walker: five bodies on four joints, and the ground below them.

A step looks up the `ground` that is near, finds where legs touch it (`contact`) and lists that
(`contact_list`). Impulses change `velocities`, bodies move, and `positions` are corrected. Legs that would
pass into the ground stop there (`time_of_impact`). `hull` tells whether the walker falls; `lanes` keeps a
batch of walkers together, and `body` has shapes and masses.
"""
