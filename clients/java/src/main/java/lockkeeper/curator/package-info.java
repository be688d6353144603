/**
 * Curator's locks with fencing tokens. {@link lockkeeper.curator.FencedMutex}, {@link
 * lockkeeper.curator.FencedReadWriteLock} and {@link lockkeeper.curator.FencedSemaphore} take the
 * place of Curator's InterProcessMutex, InterProcessReadWriteLock and InterProcessSemaphoreV2; each
 * gives out a {@link lockkeeper.curator.Grant}. They work with lockkeeper and with ZooKeeper.
 */
package lockkeeper.curator;
