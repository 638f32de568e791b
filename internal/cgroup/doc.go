// Package cgroup sets and tells the limits of processor and memory that Linux keeps for this process (cgroup v2).
//
// [Limit] moves the process into a group of its own below the one it was started in. The system permits this to root, and to
// whom the group was delegated (a service with Delegate=yes, a container of one's own), if no other process is in the group:
// processes and limits of groups below do not go together. Where it does not, the error says why, and nothing has changed.
// Elsewhere than on Linux there are no limits.
package cgroup
