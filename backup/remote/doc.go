// Package remote
package remote
